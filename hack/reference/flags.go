package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

type program struct {
	name   string
	module string
	role   role
}

// role determines which flags a program shares with others.
type role int

const (
	standalone role = iota
	anyProcess      // has the flags that all processes share
	provider        // also has the flags that all provider processes share
)

// programs are the documented programs, in document order.
var programs = []program{
	{"machinist-manager", ".", anyProcess},
	{"machinist-operator", ".", standalone},
	{"machinist-provider-sim", ".", provider},
	{"machinist-provider-azure", "providers/azure", provider},
	{"machinist-provider-libvirt", "providers/libvirt", provider},
	{"machinist-provider-openstack", "providers/openstack", provider},
	{"machinist-provider-vsphere", "providers/vsphere", provider},
	{"machinist-provider-sim migrator", ".", anyProcess},
	{"simcloud", ".", standalone},
}

type option struct{ name, kind, defaultValue, usage string }

// flagSections runs each program with --help.
func flagSections(root string) ([]section, error) {
	sections := make([]section, 0, len(programs))
	for _, p := range programs {
		cmd := exec.Command("go", append([]string{"run"}, append(strings.Fields("./cmd/"+p.name), "--help")...)...)
		cmd.Dir = filepath.Join(root, p.module)
		var failure bytes.Buffer
		cmd.Stderr = &failure
		help, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("%s --help: %w: %s", p.name, err, failure.Bytes())
		}
		options, err := parseHelp(string(help))
		if err != nil {
			return nil, fmt.Errorf("%s --help: %w", p.name, err)
		}
		sections = append(sections, section{title: p.name, role: p.role, options: options})
	}
	return group(sections), nil
}

// flagLine matches the name, type and usage of a flag in the output of pflag.
var flagLine = regexp.MustCompile(`^ +(?:-\w, |    )--([a-z0-9-]+)(?: (\S+))? {3,}(\S.*)$`)

// defaultSuffix matches the default in the usage. pflag prints it unless it is the zero value.
var defaultSuffix = regexp.MustCompile(`^(.*) \(default (.*)\)$`)

// zeros contains the zero value for each type of flag. If the default of a flag is the zero value, pflag does not print
// it in the help text.
var zeros = map[string]string{"": "false", "int": "0", "float": "0", "float32": "0", "duration": "0s"}

// parseHelp parses the flags in cobra's help text, except --help and --version.
func parseHelp(help string) (options []option, err error) {
	_, flags, found := strings.Cut(help, "\nFlags:\n")
	if !found {
		return nil, fmt.Errorf("no flags in %q", help)
	}
	flags, _, _ = strings.Cut(flags, "\n\n")
	for line := range strings.Lines(flags) {
		parts := flagLine.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if parts == nil {
			return nil, fmt.Errorf("in the help text, %q must contain a flag and its description", line)
		}
		o := option{name: parts[1], kind: cmp.Or(parts[2], "bool"), defaultValue: zeros[parts[2]], usage: parts[3]}
		if given := defaultSuffix.FindStringSubmatch(o.usage); given != nil {
			o.usage, o.defaultValue = given[1], given[2]
		}
		if o.name != "help" && o.name != "version" {
			options = append(options, o)
		}
	}
	return options, nil
}

type section struct {
	title   string
	role    role
	options []option
}

// group moves the flags shared by all processes, and by all provider processes, into separate sections.
func group(sections []section) []section {
	withRole := func(least role) (some []section) {
		for _, s := range sections {
			if s.role >= least {
				some = append(some, s)
			}
		}
		return some
	}
	every := section{title: "Every process", options: commonFlags(withRole(anyProcess))}
	providers := section{title: "Every provider process", options: without(commonFlags(withRole(provider)), every.options)}
	grouped := []section{every}
	for _, s := range sections {
		if s.role == provider && providers.options != nil {
			grouped = append(grouped, providers)
			providers.options = nil
		}
		if s.role >= anyProcess {
			s.options = without(s.options, every.options)
		}
		if s.role == provider {
			s.options = without(s.options, commonFlags(withRole(provider)))
		}
		grouped = append(grouped, s)
	}
	return grouped
}

// commonFlags returns the flags that are identical in all sections.
func commonFlags(sections []section) (options []option) {
	for _, o := range sections[0].options {
		if !slices.ContainsFunc(sections[1:], func(s section) bool { return !slices.Contains(s.options, o) }) {
			options = append(options, o)
		}
	}
	return options
}

func without(options, others []option) []option {
	return slices.DeleteFunc(slices.Clone(options), func(o option) bool { return slices.Contains(others, o) })
}

func renderFlags(sections []section) []byte {
	var out bytes.Buffer
	out.WriteString("# Flags\n\nGenerated from the programs' own definitions by `hack/generate.sh`. ")
	out.WriteString("Every program also has `--help` and `--version`.\n\n")
	out.WriteString("The processes are `machinist-manager` and each `machinist-provider-<name>`. A provider that is built with the SDK ")
	out.WriteString("also has the flags of every process and of every provider process.\n")
	for _, s := range sections {
		if len(s.options) == 0 {
			fmt.Fprintf(&out, "\n## %s\n\nIt has no flags of its own.\n", s.title)
			continue
		}
		fmt.Fprintf(&out, "\n## %s\n\n| Flag | Type | Default | Meaning |\n| --- | --- | --- | --- |\n", s.title)
		for _, o := range s.options {
			defaultValue := ""
			if o.defaultValue != "" {
				defaultValue = "`" + o.defaultValue + "`"
			}
			fmt.Fprintf(&out, "| `--%s` | %s | %s | %s |\n", o.name, o.kind, defaultValue, cell(sentence(o.usage)))
		}
	}
	return out.Bytes()
}

// sentence capitalizes a text and adds a full stop.
func sentence(text string) string {
	text = strings.ToUpper(text[:1]) + text[1:]
	if strings.HasSuffix(text, ".") {
		return text
	}
	return text + "."
}

// cell escapes table separators and HTML tags.
func cell(text string) string { return strings.NewReplacer("|", `\|`, "<", "&lt;").Replace(text) }
