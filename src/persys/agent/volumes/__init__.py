"""Managed volumes: directories, file systems in files, NFS directories and Ceph RBD images.

The steps of an order prepare and release volumes through `managed`; the API lists and deletes them through
`inventory`. Data is removed on request only.

    managed       all volumes of the node over all drivers
    registry      the volumes of this node, stored in the journal
    driver        the interface of drivers
    local         directories, and files with a file system
    nfs           directories of an NFS export
    ceph_rbd      images of a Ceph cluster
    filesystems   creates, grows and mounts file systems
    programs      runs the programs of the drivers
    detect        the drivers that this node supports
    inventory     volumes and VM disks, for list and delete
"""
