package cli

import (
	"context"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"machinist.dev/machinist/test/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

// outcome is the output of a command and its error.
type outcome struct {
	out, err string
	failed   error
}

func execute(t testing.TB, args ...string) outcome {
	t.Helper()
	return executeAt(t, env.Kubeconfig(), "", args...)
}

func executeAt(t testing.TB, kubeconfig, stdin string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), env.Patience)
	defer cancel()
	var out, errors strings.Builder
	cmd := program(NewEnv(&out, &errors))
	cmd.SetIn(strings.NewReader(stdin))
	cmd.SetArgs(append(args, "--kubeconfig", kubeconfig))
	err := cmd.ExecuteContext(ctx)
	return outcome{out: out.String(), err: errors.String(), failed: err}
}

func program(e *Env) *cobra.Command {
	root := &cobra.Command{Use: "machinist", SilenceUsage: true, SilenceErrors: true}
	root.SetOut(e.Out)
	root.SetErr(e.Err)
	root.AddCommand(Commands(e)...)
	return root
}

func (o outcome) succeeds(t testing.TB) outcome {
	t.Helper()
	if o.failed != nil {
		t.Fatalf("failed: %v\n%s%s", o.failed, o.out, o.err)
	}
	return o
}

func (o outcome) fails(t testing.TB, words ...string) outcome {
	t.Helper()
	if o.failed == nil {
		t.Fatalf("succeeded, want an error with %q\n%s%s", words, o.out, o.err)
	}
	for _, w := range words {
		if !strings.Contains(o.failed.Error(), w) {
			t.Errorf("error %q, want %q in it", o.failed, w)
		}
	}
	return o
}

func (o outcome) prints(t testing.TB, words ...string) outcome {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(o.out, w) {
			t.Errorf("printed\n%s\nwant %q in it", o.out, w)
		}
	}
	return o
}
