package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
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
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{asJSON, asYAML, asWide}, cobra.ShellCompDirectiveNoFileComp))
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
	return view.Text(e.Out, Style{Colour: e.Colour, Wide: format == asWide})
}

// Style is how text is written.
type Style struct{ Colour, Wide bool }

// Good, Bad, Warn, Faint and Strong colour a word where colours are wanted. Colours only repeat what the words say.
func (s Style) Good(text string) string   { return s.paint("32", text) }
func (s Style) Bad(text string) string    { return s.paint("31", text) }
func (s Style) Warn(text string) string   { return s.paint("33", text) }
func (s Style) Faint(text string) string  { return s.paint("2", text) }
func (s Style) Strong(text string) string { return s.paint("1", text) }

func (s Style) paint(code, text string) string {
	if !s.Colour || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// table writes rows in columns as kubectl does: capitals on top, three spaces between. Colours take no room.
func table(w io.Writer, head []string, rows [][]string) error {
	all := append([][]string{head}, rows...)
	widths := make([]int, len(head))
	for _, row := range all {
		for i, cell := range row {
			widths[i] = max(widths[i], visible(cell))
		}
	}
	var out strings.Builder
	for _, row := range all {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-visible(cell)+3))
			}
		}
		out.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

var colours = regexp.MustCompile("\x1b\\[[0-9]+m")

// visible is how many columns a text takes on a terminal.
func visible(text string) int { return utf8.RuneCountInString(colours.ReplaceAllString(text, "")) }
