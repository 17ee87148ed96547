package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/internal/cli/printer"
)

// These are the possible values of the flag -o.
const (
	asText = ""
	asWide = "wide"
	asJSON = "json"
	asYAML = "yaml"
)

// outputFlag adds the flag -o to a command that prints a view.
func outputFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", asText, "print as one of: json, yaml, wide")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{asJSON, asYAML, asWide},
		cobra.ShellCompDirectiveNoFileComp))
}

// checkFormat returns an error if the value of -o is unknown. Commands call checkFormat before they send requests to
// the cluster.
func checkFormat(format string) error {
	switch format {
	case asText, asWide, asJSON, asYAML:
		return nil
	}
	return fmt.Errorf("--output %q: must be json, yaml or wide", format)
}

// View is the result of a command that is printed to the user. For JSON and YAML output, the fields of the view are
// encoded. For text output, the method Text is called.
type View interface {
	Text(w io.Writer, style Style) error
}

// Print writes a view to e.Out. The format is the value of the flag -o.
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

// Style determines how text output looks.
type Style = printer.Style

// style returns the style of text output for the given value of -o.
func (e *Env) style(format string) Style {
	return Style{Colour: e.Colour, Wide: format == asWide, Plain: e.Plain}
}
