"""VMs on libvirt.

`runtimes.detect` builds the runtime; the steps of an order in `agent.workloads` call it. Consoles and logs
are read by `agent.access`, usage by `agent.node`.

    runtime          the VM runtime
    detect           detects libvirt and KVM, and builds the runtime
    libvirt          the connection to libvirtd, its errors and its Python binding
    kvm              tests KVM with a small guest
    domain_xml       builds and parses the domain XML
    storage/         disks, storage pools and disk files
    networks         interfaces, static addresses and DHCP reservations
    power            start, resume, shut down, power off, undefine
    inspection       state, addresses and runs of VMs, and the list of all VMs
    console          the serial console and its log
    usage            CPU, memory, disk and network usage
    state_dir        the files of each VM on disk, with the cloud-init ISO
"""
