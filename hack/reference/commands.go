package main

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"machinist.dev/machinist/internal/cli"
)

// commandsDocument contains the texts of --help.
func commandsDocument() ([]byte, error) {
	root, env := &cobra.Command{Use: "machinist"}, cli.NewEnv(io.Discard, io.Discard)
	root.AddCommand(cli.Commands(env)...)
	root.AddCommand(cli.ProviderCommand(env), cli.BootstrapCommand(env))
	var out bytes.Buffer
	out.WriteString(`# Commands of machinist

Generated from the commands' own definitions by ` + "`hack/generate.sh`" + `. [The command line](../cli.md) explains what
the commands print.

Every command also has ` + "`--help`" + `. The commands that connect to a cluster have the flags of kubectl that choose the
cluster and the user: ` + "`--kubeconfig`, `--context`, `--namespace`, `--request-timeout`, `--as`" + ` and the others.
`)
	renderCommands(&out, root)
	return out.Bytes(), nil
}

// renderCommands writes a section for each subcommand at all levels.
func renderCommands(out *bytes.Buffer, parent *cobra.Command) {
	for _, c := range parent.Commands() {
		if c.IsAvailableCommand() {
			renderCommand(out, c)
			renderCommands(out, c)
		}
	}
}

func renderCommand(out *bytes.Buffer, c *cobra.Command) {
	fmt.Fprintf(out, "\n## %s\n\n", c.CommandPath())
	if c.Long == "" {
		fmt.Fprintf(out, "%s\n", sentence(c.Short))
	} else {
		fmt.Fprintf(out, "%s\n", paragraphs(c.Long))
	}
	if c.Runnable() {
		fmt.Fprintf(out, "\n```text\n%s\n```\n", strings.TrimSuffix(c.UseLine(), " [flags]"))
	}
	if c.Example != "" {
		fmt.Fprintf(out, "\n```sh\n%s\n```\n", indentation.ReplaceAllString(c.Example, ""))
	}
	flags := c.LocalNonPersistentFlags()
	if !flags.HasAvailableFlags() {
		return
	}
	out.WriteString("\n| Flag | Type | Default | Meaning |\n| --- | --- | --- | --- |\n")
	flags.VisitAll(func(flag *pflag.Flag) {
		if flag.Hidden || flag.Name == "help" {
			return
		}
		name, defaultValue := "`--"+flag.Name+"`", ""
		if flag.Shorthand != "" {
			name += ", `-" + flag.Shorthand + "`"
		}
		if flag.DefValue != "" && flag.DefValue != "[]" {
			defaultValue = "`" + flag.DefValue + "`"
		}
		kind, usage := pflag.UnquoteUsage(flag)
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", name, cmp.Or(kind, "bool"), defaultValue, cell(sentence(usage)))
	})
}

// indentation matches the two spaces at the beginning of each line of an example.
var indentation = regexp.MustCompile(`(?m)^  `)

// paragraphs joins the lines of each paragraph and escapes HTML tags.
func paragraphs(text string) string {
	all := strings.Split(strings.TrimSpace(text), "\n\n")
	for i, paragraph := range all {
		all[i] = strings.ReplaceAll(strings.Join(strings.Fields(paragraph), " "), "<", "&lt;")
	}
	return strings.Join(all, "\n\n")
}
