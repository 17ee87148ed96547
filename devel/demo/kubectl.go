package demo

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// showKubectl runs kubectl, and prints and returns the command's output. If a selection function is given, showKubectl
// prints and returns only the selected part of the output.
func (s *scenarioEnv) showKubectl(ctx context.Context, part func(string) string, args ...string) (string, error) {
	text, err := s.kubectl(ctx, args...)
	if err != nil {
		return "", err
	}
	if part != nil {
		text = part(text)
	}
	text = strings.TrimRight(text, "\n")
	s.screen.Printf("   $ kubectl %s\n%s", strings.Join(args, " "), indented(text))
	return text, nil
}

// kubectl runs kubectl as a user of the control cluster would. The cache of kubectl is in the folder of the demo.
func (s *scenarioEnv) kubectl(ctx context.Context, args ...string) (string, error) {
	args = append([]string{"--kubeconfig", s.stack.Control.Kubeconfig(), "--namespace", namespace}, args...)
	cmd := exec.CommandContext(ctx, s.stack.Control.Kubectl(), args...)
	cmd.Env = append(os.Environ(), "KUBECACHEDIR="+filepath.Join(s.stack.Dir(), "kubectl-cache"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return string(out), nil
}

func (s *scenarioEnv) changeWithKubectl(ctx context.Context, args ...string) error {
	shown := make([]string, len(args))
	for i, arg := range args {
		if shown[i] = arg; strings.ContainsAny(arg, `{" `) {
			shown[i] = "'" + arg + "'"
		}
	}
	s.screen.Printf("   $ kubectl %s", strings.Join(shown, " "))
	_, err := s.kubectl(ctx, args...)
	return err
}

func conditionsPart(description string) string {
	_, rest, found := strings.Cut(description, "\n  Conditions:\n")
	if !found {
		return ""
	}
	lines := []string{"Conditions:"}
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, "    ") {
			break
		}
		lines = append(lines, strings.TrimRight(line[2:], "\n"))
	}
	return strings.Join(lines, "\n")
}

func conditionPart(kind string) func(string) string {
	return func(description string) string {
		const first = "\n  Last Transition Time:"
		all := strings.Split(conditionsPart(description), first)
		for _, c := range all[1:] {
			if strings.HasSuffix(c, " "+kind) {
				return all[0] + first + c
			}
		}
		return ""
	}
}

// condition prints one condition of an object with kubectl describe. The method fails if the condition has another
// reason.
func (s *scenarioEnv) condition(ctx context.Context, object, kind, reason string) error {
	shown, err := s.showKubectl(ctx, conditionPart(kind), "describe", object)
	if err != nil {
		return err
	}
	if !strings.Contains(shown, reason) {
		return fmt.Errorf("kubectl describe %s shows no condition %s with the reason %s", object, kind, reason)
	}
	return nil
}

func (s *scenarioEnv) event(ctx context.Context, reason, about string) error {
	args := []string{"get", "events", "--field-selector=reason=" + reason}
	err := s.poll(ctx, func(ctx context.Context) error {
		text, err := s.kubectl(ctx, args...)
		if err != nil {
			return err
		}
		if !strings.Contains(text, about) {
			return fmt.Errorf("there is no event %s about %s:\n%s", reason, about, text)
		}
		return nil
	})
	if err != nil {
		return err
	}
	_, err = s.showKubectl(ctx, nil, args...)
	return err
}

// gauge waits until the manager serves a metric with the given labels and value. It then prints a command that reads
// the metric, and its output.
func (s *scenarioEnv) gauge(ctx context.Context, name, labels, value string) error {
	want := fmt.Sprintf("%s{%s} %s", name, labels, value)
	var lines []string
	err := s.poll(ctx, func(ctx context.Context) error {
		var err error
		if lines, err = s.series(ctx, name+"{"); err != nil {
			return err
		}
		if !slices.Contains(lines, want) {
			return fmt.Errorf("the metrics are %q, want %s", lines, want)
		}
		return nil
	})
	if err != nil {
		return err
	}
	s.screen.Printf("   $ curl -s http://%s/metrics | grep ^%s\n%s", s.stack.Metrics(s.stack.Manager), name,
		indented(strings.Join(lines, "\n")))
	return nil
}

func (s *scenarioEnv) series(ctx context.Context, prefix string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.stack.Metrics(s.stack.Manager)+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read the metrics of the manager: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("read the metrics of the manager: %w", err)
	}
	var found []string
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, prefix) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found, nil
}

func indented(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if line != "" {
			lines[i] = "     " + line
		}
	}
	return strings.Join(lines, "\n")
}
