# The first process of the namespaces. It mounts the folders that libvirt expects at fixed paths, keeps the namespaces
# alive, and reaps orphaned processes.
set -eu
dir=$1
bind() { # FOLDER PATH
	mkdir -p "$2"
	mount --bind "$dir/$1" "$2"
}
bind etc /etc/libvirt
bind lib /var/lib/libvirt
bind cache /var/cache/libvirt
bind log /var/log/libvirt
bind run /run/libvirt
mount -t tmpfs -o size=32m small "$dir/small"
# libvirt looks up the user libvirt-qemu even if the configuration names another user.
for file in passwd group; do
	mount --bind "$dir/$file" "/etc/$file"
done
# libvirt enables forwarding for networks with the mode "open".
mount --bind "$dir/ip_forward" /proc/sys/net/ipv4/ip_forward
touch "$dir/mounted"
while :; do sleep 3600; done
