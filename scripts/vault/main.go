// Vault for the tests of this repository: its own command, without the plugins that only clouds need.
package main

import (
	"os"

	"github.com/hashicorp/vault/command"
)

func main() {
	os.Exit(command.Run(os.Args[1:]))
}
