"""What a guest's disks are made of: image files, overlays, empty disks, cloud-init media."""
