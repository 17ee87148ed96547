package libvirt

import (
	"bytes"
	"crypto/rand"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"text/template"
)

//go:embed config
var configFiles embed.FS

func (h *Hypervisor) configure() error {
	for _, dir := range []string{"etc/pki", "etc/storage/autostart", "etc/qemu/networks/autostart", "lib", "cache", "log",
		"run", "pool", "small"} {
		if err := os.MkdirAll(filepath.Join(h.dir, dir), 0o755); err != nil {
			return err
		}
	}
	values := map[string]any{
		"Dir": h.dir, "TCP": h.tcp, "TLS": h.tls, "UUID": randomUUID(), "Pool": PoolName, "SmallPool": SmallPool,
		"Network": Network, "Bridge": h.subnet.bridge(), "Host": h.subnet.host(), "First": h.subnet.address(10),
		"Last": h.subnet.address(250),
	}
	for template, path := range map[string]string{
		"libvirtd.conf":  "etc/libvirtd.conf",
		"qemu.conf":      "etc/qemu.conf",
		"pool.xml":       "etc/storage/" + PoolName + ".xml",
		"small-pool.xml": "etc/storage/" + SmallPool + ".xml",
		"network.xml":    "etc/qemu/networks/" + Network + ".xml",
		"keeper.sh":      "keeper.sh",
	} {
		if err := h.writeTemplate(template, path, values); err != nil {
			return err
		}
	}
	// libvirtd also starts the pools and networks that these links point to.
	for path, target := range map[string]string{
		"etc/storage/autostart/" + PoolName + ".xml":      "/etc/libvirt/storage/" + PoolName + ".xml",
		"etc/storage/autostart/" + SmallPool + ".xml":     "/etc/libvirt/storage/" + SmallPool + ".xml",
		"etc/qemu/networks/autostart/" + Network + ".xml": "/etc/libvirt/qemu/networks/" + Network + ".xml",
	} {
		if err := os.Symlink(target, filepath.Join(h.dir, path)); err != nil {
			return err
		}
	}
	files := map[string][]byte{
		"etc/pki/ca.pem":         h.certs.ca,
		"etc/pki/server.pem":     h.certs.server.certificate,
		"etc/pki/server-key.pem": h.certs.server.key,
		"ip_forward":             []byte("0\n"),
	}
	for name, line := range map[string]string{
		"passwd": "libvirt-qemu:x:64055:64055::/var/lib/libvirt:/usr/sbin/nologin\n", "group": "libvirt-qemu:x:64055:\n",
	} {
		system, err := os.ReadFile(filepath.Join("/etc", name))
		if err != nil {
			return err
		}
		if bytes.Contains(system, []byte("libvirt-qemu:")) {
			line = ""
		}
		files[name] = append(bytes.TrimRight(system, "\n"), "\n"+line...)
	}
	for name, content := range files {
		// All users must be able to read passwd.
		if err := os.WriteFile(filepath.Join(h.dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (h *Hypervisor) writeTemplate(name, path string, values map[string]any) error {
	parsed, err := template.ParseFS(configFiles, "config/"+name)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := parsed.Option("missingkey=error").Execute(&text, values); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(h.dir, path), text.Bytes(), 0o600)
}

// randomUUID returns a UUID that distinguishes hypervisors on one system.
func randomUUID() string {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails
	id[6], id[8] = id[6]&0x0f|0x40, id[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:])
}
