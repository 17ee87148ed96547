package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"machinist.dev/machinist/internal/cli/printer"
)

const (
	asText = ""
	asWide = "wide"
	asJSON = "json"
	asYAML = "yaml"
)

func outputFlag(cmd *cobra.Command, format *string) {
	cmd.Flags().StringVarP(format, "output", "o", asText, "print as one of: json, yaml, wide")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{asJSON, asYAML, asWide},
		cobra.ShellCompDirectiveNoFileComp))
}

// checkFormat returns an error for an unknown value of -o. Commands call it before they send requests.
func checkFormat(format string) error {
	switch format {
	case asText, asWide, asJSON, asYAML:
		return nil
	}
	return fmt.Errorf("--output %q: must be json, yaml or wide", format)
}

// View is the result of a command. With -o json or -o yaml, the output is the encoded View. Otherwise the output is the
// text that the method Text writes.
type View interface {
	Text(w io.Writer, style Style) error
}

// Print writes a view to e.Out. The format is the value of -o.
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

func (e *Env) style(format string) Style {
	return Style{Colour: e.Colour, AllColumns: format == asWide, ASCII: e.ASCII}
}
