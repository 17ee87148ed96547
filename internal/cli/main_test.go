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

// outcome contains what a command wrote to standard output and standard error, and the error that the command returned.
type outcome struct {
	out, err string
	failed   error
}

// execute runs the program with the kubeconfig of the test control plane.
func execute(t testing.TB, args ...string) outcome {
	t.Helper()
	return executeAt(t, env.Kubeconfig(), "", args...)
}

// executeAt runs the program with the given kubeconfig. The argument in is the standard input of the program.
func executeAt(t testing.TB, kubeconfig, in string, args ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), env.Patience)
	defer cancel()
	var out, errors strings.Builder
	cmd := program(NewEnv(&out, &errors))
	cmd.SetIn(strings.NewReader(in))
	cmd.SetArgs(append(args, "--kubeconfig", kubeconfig))
	err := cmd.ExecuteContext(ctx)
	return outcome{out: out.String(), err: errors.String(), failed: err}
}

// program returns the same root command as cmd/machinist.
func program(e *Env) *cobra.Command {
	root := &cobra.Command{Use: "machinist", SilenceUsage: true, SilenceErrors: true}
	root.SetOut(e.Out)
	root.SetErr(e.Err)
	root.AddCommand(Commands(e)...)
	return root
}

// The command must have returned no error.
func (o outcome) succeeds(t testing.TB) outcome {
	t.Helper()
	if o.failed != nil {
		t.Fatalf("failed: %v\n%s%s", o.failed, o.out, o.err)
	}
	return o
}

// The command must have returned an error that contains all given texts.
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

// The command must have printed all given texts to standard output.
func (o outcome) prints(t testing.TB, words ...string) outcome {
	t.Helper()
	for _, w := range words {
		if !strings.Contains(o.out, w) {
			t.Errorf("printed\n%s\nwant %q in it", o.out, w)
		}
	}
	return o
}
