package reference

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/strvals"

	"machinist.dev/machinist/internal/install/manifests"
)

var (
	shellBlock   = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```")
	continuation = regexp.MustCompile(`\\\n\s*`)
	argument     = regexp.MustCompile(`'[^']*'|"[^"]*"|\S+`)
)

type helmCommand struct {
	verb, release, chart string
	sets                 []string
	// reuse means that the release keeps its values, and that new values of the chart get their defaults.
	reuse bool
}

func helmCommands(text string) (commands []helmCommand) {
	for _, block := range shellBlock.FindAllStringSubmatch(text, -1) {
		for line := range strings.Lines(continuation.ReplaceAllString(block[1], " ")) {
			words := argument.FindAllString(line, -1)
			if len(words) == 0 || words[0] != "helm" {
				continue
			}
			var c helmCommand
			var names []string
			for i := 1; i < len(words); i++ {
				switch word := words[i]; {
				case word == "--set" && i+1 < len(words):
					i++
					c.sets = append(c.sets, strings.Trim(words[i], `'"`))
				case word == "--reset-then-reuse-values":
					c.reuse = true
				case word == "--namespace" || word == "--kubeconfig":
					i++
				case !strings.HasPrefix(word, "-") && !strings.HasPrefix(word, ">"):
					names = append(names, word)
				}
			}
			if len(names) == 3 && slices.Contains([]string{"install", "upgrade", "template"}, names[0]) {
				c.verb, c.release, c.chart = names[0], names[1], strings.TrimPrefix(names[2], "charts/")
				commands = append(commands, c)
			}
		}
	}
	return commands
}

func TestHelmCommandsInDocumentsRender(t *testing.T) {
	all, count := documents(t), 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, c := range helmCommands(all[name]) {
			count++
			if _, err := os.Stat(filepath.Join(root, "charts", c.chart, "Chart.yaml")); err != nil {
				t.Errorf("%s: helm %s %s: %v", name, c.verb, c.release, err)
				continue
			}
			if c.verb == "upgrade" && !c.reuse {
				t.Errorf("%s: helm upgrade %s lacks --reset-then-reuse-values", name, c.release)
			}
			release := manifests.Release{Name: c.release, Namespace: "machinist-system", Values: map[string]any{}}
			if c.reuse {
				c.sets = append([]string{"provider.name=sim"}, c.sets...)
			}
			for _, set := range c.sets {
				if c.chart == "machinist" && strings.HasPrefix(set, "provider.") {
					continue
				}
				if err := strvals.ParseInto(strings.ReplaceAll(set, "'", ""), release.Values); err != nil {
					t.Errorf("%s: --set %s: %v", name, set, err)
				}
			}
			var err error
			switch c.chart {
			case "machinist":
				_, err = manifests.RenderMachinist(release)
			case "machinist-provider":
				_, err = manifests.RenderProvider(release)
			}
			if err != nil {
				t.Errorf("%s: helm %s %s charts/%s: %v", name, c.verb, c.release, c.chart, err)
			}
		}
	}
	if count < 5 {
		t.Errorf("got %d Helm commands in the documents, want at least 5", count)
	}
}
