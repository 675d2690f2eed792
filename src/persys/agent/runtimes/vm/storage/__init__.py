"""The disks of VMs. `vm.runtime` creates, checks and removes disks through `disks`.

Disks are data: they are created and grown here, and removed on request only.

    disks        creates, grows, checks, lists and removes disks
    pools        storage pools of libvirt and their volumes
    qemu_img     disk files through qemu-img
    disk_guard   verifies that a VM runs on the files that were checked
"""
