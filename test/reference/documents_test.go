package reference

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"machinist.dev/machinist/internal/cli"
)

const root = "../.."

func documents(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == "bin" || name == "dist" ||
			strings.HasPrefix(d.Name(), ".") && name != "." && name != ".github"):
			return fs.SkipDir
		case d.IsDir() || path.Ext(name) != ".md":
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, name))
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("got %d documents, want at least 10", len(all))
	}
	return all
}

var (
	link = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	// code is a pattern for code blocks and code spans. The test ignores links in code.
	code    = regexp.MustCompile("(?s)(?m:^ *```.*?^ *```$)|`[^`\n]*`")
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
)

// The test checks only links within the repository.
func TestLinksLeadToFilesAndHeadings(t *testing.T) {
	all := documents(t)
	for name, text := range all {
		for _, found := range link.FindAllStringSubmatch(code.ReplaceAllString(text, "``"), -1) {
			if strings.Contains(found[1], "://") || strings.HasPrefix(found[1], "mailto:") {
				continue
			}
			target, fragment, _ := strings.Cut(found[1], "#")
			file := path.Join(path.Dir(name), target)
			if target == "" {
				file = name
			}
			if _, err := os.Stat(filepath.Join(root, file)); err != nil {
				t.Errorf("%s: the link leads to a missing file: %s", name, found[1])
			} else if fragment != "" && !slices.Contains(anchors(all[file]), fragment) {
				t.Errorf("%s: the link leads to a heading that %s does not have: #%s", name, file, fragment)
			}
		}
	}
}

func anchors(text string) (fragments []string) {
	// Lines of code that begin with # are not headings.
	text = regexp.MustCompile("(?sm)^ *```.*?^ *```$").ReplaceAllString(text, "")
	drop := regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	for _, found := range heading.FindAllStringSubmatch(text, -1) {
		words := link.ReplaceAllString(found[1], "]")
		fragments = append(fragments, strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(words), ""), " ", "-"))
	}
	return fragments
}

// command is a pattern for a call of machinist at the beginning of a line or of a code span.
var command = regexp.MustCompile("(?m)(?:^(?:\\$ )?(?:bin/)?|`)(?:kubectl )?machinist ([a-z][^`\n|]*)")

func TestCommandsAndFlagsInDocumentsExist(t *testing.T) {
	root, env := &cobra.Command{Use: "machinist"}, cli.NewEnv(os.Stdout, os.Stderr)
	root.AddCommand(cli.Commands(env)...)
	root.AddCommand(cli.ProviderCommand(env), cli.BootstrapCommand(env))
	root.InitDefaultCompletionCmd("bash")
	count := 0
	all := documents(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, found := range command.FindAllStringSubmatch(all[name], -1) {
			line, _, _ := strings.Cut(found[1], "#")
			words := strings.Fields(line)
			cmd, rest, err := root.Find(words)
			if err != nil || cmd == root {
				t.Errorf("%s: the command machinist %s does not exist", name, line)
				continue
			}
			if cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
				t.Errorf("%s: machinist %s has no command %s", name, cmd.Name(), rest[0])
			}
			count++
			for _, word := range rest {
				flag, isFlag := strings.CutPrefix(word, "--")
				flag, _, _ = strings.Cut(strings.TrimRight(flag, ".,;:)`"), "=")
				if isFlag && cmd.Flags().Lookup(flag) == nil && cmd.InheritedFlags().Lookup(flag) == nil {
					t.Errorf("%s: machinist %s has no flag --%s", name, cmd.CommandPath(), flag)
				}
			}
		}
	}
	if count < 10 {
		t.Errorf("got %d commands in the documents, want at least 10", count)
	}
}

// reason is a pattern for a code span that looks like a condition reason.
var reason = regexp.MustCompile("`([A-Z][a-z]+(?:[A-Z][A-Za-z]+)+)`")

// Readers search the pages for condition reasons, so the pages must spell the reasons like the API.
func TestReasonsInDocumentsExist(t *testing.T) {
	all := documents(t)
	known := all["docs/reference/conditions.md"] + all["docs/reference/api.md"]
	for _, name := range []string{"docs/troubleshooting.md", "docs/concepts.md"} {
		for _, found := range reason.FindAllStringSubmatch(all[name], -1) {
			if !strings.Contains(known, "`"+found[1]+"`") && !strings.Contains(known, `"`+found[1]+`"`) {
				t.Errorf("%s: the reason %s is not in the reference", name, found[1])
			}
		}
	}
}

var metricName = regexp.MustCompile(`\bmachinist_[a-z_]+[a-z]`)

func TestMetricsInDocumentsExist(t *testing.T) {
	all := documents(t)
	_, table, _ := strings.Cut(all["docs/reference/metrics.md"], "| Name | Type |")
	table, _, _ = strings.Cut(table, "\n\n")
	for name, text := range all {
		for _, metric := range metricName.FindAllString(text, -1) {
			if !strings.Contains(table, "`"+metric+"`") {
				t.Errorf("%s: the metric %s does not exist", name, metric)
			}
		}
	}
}

// Readers search the page for log messages, so the page must quote the messages exactly.
func TestMessagesInTroubleshootingExist(t *testing.T) {
	_, section, _ := strings.Cut(documents(t)["docs/troubleshooting.md"], "\n## A pod of Machinist is not ready\n")
	section, _, _ = strings.Cut(section, "\n## ")
	sources, err := filepath.Glob(filepath.Join(root, "internal/platform/process/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, source := range sources {
		text, err := os.ReadFile(source)
		if err != nil {
			t.Fatal(err)
		}
		code.Write(text)
	}
	messages := regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(section, -1)
	for _, message := range messages {
		for part := range strings.SplitSeq(message[1], "…") {
			part = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(part), "--target-kubeconfig="))
			if !strings.Contains(code.String(), part) {
				t.Errorf("no process logs %q", part)
			}
		}
	}
	if len(messages) < 4 {
		t.Errorf("got %d messages, want at least 4", len(messages))
	}
}
