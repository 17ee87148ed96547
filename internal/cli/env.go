package cli

import (
	"cmp"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"
	"k8s.io/client-go/tools/clientcmd"
)

// Env holds what all commands share: the output streams, the output style, and the flags that select the cluster.
type Env struct {
	// Out receives results. Err receives notes, warnings and progress.
	Out, Err io.Writer
	// Terminal is true if Out is a terminal. Width is the number of columns of the terminal, or 0 without a terminal.
	Terminal bool
	Width    int
	// Colour is true if Out is a terminal that supports colors and NO_COLOR is not set.
	Colour bool
	// ASCII is true if text must be ASCII: Out is not a terminal, TERM is "dumb", or the locale does not use UTF-8.
	ASCII bool
	// Now returns the current time.
	Now func() time.Time

	// rules select the kubeconfig. overrides are flags that take precedence over the kubeconfig.
	rules     *clientcmd.ClientConfigLoadingRules
	overrides *clientcmd.ConfigOverrides
}

// NewEnv returns an environment that writes to out and err. Environment variables determine the style.
func NewEnv(out, err io.Writer) *Env {
	e := &Env{Out: out, Err: err, ASCII: true, Now: time.Now, rules: clientcmd.NewDefaultClientConfigLoadingRules(),
		overrides: &clientcmd.ConfigOverrides{ClusterDefaults: clientcmd.ClusterDefaults}}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		e.Terminal = true
		e.Width, _, _ = term.GetSize(int(file.Fd()))
		e.Colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		e.ASCII = os.Getenv("TERM") == "dumb" ||
			!isUTF8(cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG")))
	}
	return e
}

func isUTF8(locale string) bool {
	locale = strings.ToLower(locale)
	return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
}

// Add adds kubectl's flags for the cluster, context, user and namespace to a command and its subcommands.
func (e *Env) Add(cmd *cobra.Command) *cobra.Command {
	flags := cmd.PersistentFlags()
	flags.StringVar(&e.rules.ExplicitPath, "kubeconfig", "", "Path to the kubeconfig file to use for CLI requests.")
	clientcmd.BindOverrideFlags(e.overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	flags.VisitAll(func(flag *pflag.Flag) {
		switch flag.Name {
		case "kubeconfig", clientcmd.FlagContext, clientcmd.FlagNamespace, clientcmd.FlagTimeout:
		default:
			flag.Hidden = true
		}
	})
	return cmd
}

func (e *Env) clientConfig() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(e.rules, e.overrides)
}
