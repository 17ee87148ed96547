# The first process of the namespaces: mounts what libvirt finds at fixed paths, and takes the exit of all others.
set -eu
dir=$1
over() { # FOLDER PATH
	mkdir -p "$2"
	mount --bind "$dir/$1" "$2"
}
over etc /etc/libvirt
over lib /var/lib/libvirt
over cache /var/cache/libvirt
over log /var/log/libvirt
over run /run/libvirt
mount -t tmpfs -o size=32m small "$dir/small"
# libvirt looks up the user libvirt-qemu even where the configuration names another.
for file in passwd group; do
	mount --bind "$dir/$file" "/etc/$file"
done
# libvirt turns forwarding on for networks of the mode "open".
mount --bind "$dir/ip_forward" /proc/sys/net/ipv4/ip_forward
touch "$dir/mounted"
while :; do sleep 3600; done
