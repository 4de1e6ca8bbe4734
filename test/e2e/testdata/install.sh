# Installs the smallest Debian that starts from its disk. A template of bootlab: the document of this host alone.
# It asks nothing, whatever is on the disk already.
disk={{.Profile.InstallTo}}
echo 'type=83, bootable' | sfdisk -q -w always -W always $disk
mkfs.ext4 -q -F ${disk}1
mount ${disk}1 /mnt
debootstrap --variant=minbase --include=linux-image-cloud-amd64,grub-pc,systemd-sysv bookworm /mnt {{.MirrorURL "debian"}}
for dir in dev proc sys; do mount --rbind /$dir /mnt/$dir; done
echo {{.Host.Name}} >/mnt/etc/hostname
echo "${disk}1 / ext4 errors=remount-ro 0 1" >/mnt/etc/fstab
printf '[Match]\nName=en*\n[Network]\nDHCP=yes\n' >/mnt/etc/systemd/network/lan.network
chroot /mnt systemctl -q enable systemd-networkd
printf 'GRUB_TIMEOUT=0\nGRUB_TERMINAL=console\nGRUB_CMDLINE_LINUX_DEFAULT=\nGRUB_CMDLINE_LINUX=console=ttyS0\n' >>/mnt/etc/default/grub
chroot /mnt grub-install $disk
chroot /mnt update-grub
echo 'root:{{.Host.Vars.password}}' | chroot /mnt chpasswd
mount -o remount,ro /mnt
wget -q -O /dev/null {{.DoneURL}}
