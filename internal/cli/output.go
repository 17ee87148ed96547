package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/internal/cli/printer"
)

// Formats of -o.
const (
	asText = ""
	asWide = "wide"
	asJSON = "json"
	asYAML = "yaml"
)

// outputFlag adds -o to a command that prints a view.
func outputFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", asText, "print as one of: json, yaml, wide")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{asJSON, asYAML, asWide},
		cobra.ShellCompDirectiveNoFileComp))
}

// checkFormat refuses what -o does not know, before anything is asked of the cluster.
func checkFormat(format string) error {
	switch format {
	case asText, asWide, asJSON, asYAML:
		return nil
	}
	return fmt.Errorf("--output %q: must be json, yaml or wide", format)
}

// View is what a command has found out: its fields are what programs read, Text is what people read.
type View interface {
	Text(w io.Writer, style Style) error
}

// Print writes a view in the format asked for.
func (e *Env) Print(view View, format string) error {
	switch format {
	case asJSON:
		encoder := json.NewEncoder(e.Out)
		encoder.SetIndent("", "    ")
		return encoder.Encode(view)
	case asYAML:
		out, err := yaml.Marshal(view)
		if err != nil {
			return err
		}
		_, err = e.Out.Write(out)
		return err
	}
	return view.Text(e.Out, e.style(format))
}

// Style is how text is written.
type Style = printer.Style

// style is how this environment wants text in a format.
func (e *Env) style(format string) Style {
	return Style{Colour: e.Colour, Wide: format == asWide, Plain: e.Plain}
}
