package profile

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// cloudConfig writes a machine as a cloud-config. Every value is a quoted string or a literal block, so values cannot
// add keys or commands.
func cloudConfig(m *machine) ([]byte, error) {
	var out bytes.Buffer
	// On RHEL, cloud-init appends the cloud's domain to the host name by default, but node names have no domain.
	out.WriteString("#cloud-config\nprefer_fqdn_over_hostname: false\n")
	if m.setHostname {
		out.WriteString("hostname: " + quoteYAML("<<MACHINE_NAME>>") + "\n")
	}
	writeList(&out, "ssh_authorized_keys", m.sshKeys)
	if len(m.aptProxy) > 0 {
		out.WriteString("apt:\n")
		for _, name := range slices.Sorted(maps.Keys(m.aptProxy)) {
			fmt.Fprintf(&out, "  %s: %s\n", name, quoteYAML(m.aptProxy[name]))
		}
	}
	if len(m.packages) > 0 {
		out.WriteString("package_update: true\n")
	}
	writeList(&out, "packages", m.packages)
	out.WriteString("write_files:\n")
	for _, f := range m.allFiles() {
		writeFile(&out, f)
	}
	commands := slices.Clone(m.preStartCommands)
	// The unit may already run with another configuration, so restart it. Do not wait for the start, which may take
	// minutes.
	for _, u := range m.units {
		if !u.enabled {
			continue
		}
		verb := "restart"
		if u.keepRunning {
			verb = "start"
		}
		commands = append(commands, []string{"systemctl", "enable", u.name},
			[]string{"systemctl", verb, "--no-block", u.name})
	}
	commands = append(commands, m.postStartCommands...)
	out.WriteString("runcmd:\n")
	for _, command := range commands {
		words := make([]string, len(command))
		for i, word := range command {
			words[i] = quoteYAML(word)
		}
		fmt.Fprintf(&out, "  - [%s]\n", strings.Join(words, ", "))
	}
	return out.Bytes(), nil
}

func (m *machine) allFiles() []file {
	files := slices.Clone(m.files)
	for _, u := range m.units {
		files = append(files, u.files()...)
	}
	return files
}

func (u unit) files() []file {
	var files []file
	if u.text != "" {
		files = append(files, file{path: "/etc/systemd/system/" + u.name, mode: 0o644, text: u.text})
	}
	if u.dropIn != "" {
		files = append(files, file{path: "/etc/systemd/system/" + u.name + ".d/" + u.dropInName, mode: 0o644, text: u.dropIn})
	}
	return files
}

func writeList(out *bytes.Buffer, name string, values []string) {
	if len(values) == 0 {
		return
	}
	out.WriteString(name + ":\n")
	for _, value := range values {
		out.WriteString("  - " + quoteYAML(value) + "\n")
	}
}

func writeFile(out *bytes.Buffer, f file) {
	fmt.Fprintf(out, "  - path: %s\n    permissions: \"%04o\"\n", quoteYAML(f.path), f.mode)
	if f.base64 {
		out.WriteString("    encoding: b64\n")
	}
	if f.append {
		out.WriteString("    append: true\n")
	}
	out.WriteString("    content: ")
	writeText(out, f.text, "      ")
}
