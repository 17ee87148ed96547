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

// Env is the environment of all commands: where they write their output, how the text looks, and which cluster they
// use.
type Env struct {
	// Out receives results. Err receives notes, warnings and progress.
	Out, Err io.Writer
	// Terminal is true if Out is a terminal, so that a command can overwrite lines. Width is the width of the terminal in
	// columns, or 0 if Out is not a terminal.
	Terminal bool
	Width    int
	// Colour is true if text may have colors. This requires that Out is a terminal, that NO_COLOR is unset or empty, and
	// that TERM is not "dumb".
	Colour bool
	// Plain is true if text must be ASCII, because Out is not a terminal, TERM is "dumb", or the locale does not use
	// UTF-8.
	Plain bool
	// Now returns the current time. Reports use it to compute ages.
	Now func() time.Time

	// rules determine which kubeconfig is read. overrides are the values of flags that take precedence over the
	// kubeconfig.
	rules     *clientcmd.ClientConfigLoadingRules
	overrides *clientcmd.ConfigOverrides
}

// NewEnv returns an environment that writes to out and err. Environment variables of the process determine the style of
// the text.
func NewEnv(out, err io.Writer) *Env {
	e := &Env{Out: out, Err: err, Plain: true, Now: time.Now, rules: clientcmd.NewDefaultClientConfigLoadingRules(),
		overrides: &clientcmd.ConfigOverrides{ClusterDefaults: clientcmd.ClusterDefaults}}
	if file, ok := out.(*os.File); ok && term.IsTerminal(int(file.Fd())) {
		e.Terminal = true
		e.Width, _, _ = term.GetSize(int(file.Fd()))
		e.Colour = os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
		e.Plain = os.Getenv("TERM") == "dumb" ||
			!isUTF8(cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG")))
	}
	return e
}

// isUTF8 reports whether the character encoding of a locale is UTF-8.
func isUTF8(locale string) bool {
	locale = strings.ToLower(locale)
	return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
}

// Add adds flags to a command and its subcommands: kubectl's flags for the cluster, context, user and namespace.
func (e *Env) Add(cmd *cobra.Command) *cobra.Command {
	flags := cmd.PersistentFlags()
	flags.StringVar(&e.rules.ExplicitPath, "kubeconfig", "", "Path to the kubeconfig file to use for CLI requests.")
	clientcmd.BindOverrideFlags(e.overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	flags.VisitAll(func(flag *pflag.Flag) {
		switch flag.Name {
		case "kubeconfig", clientcmd.FlagContext, clientcmd.FlagNamespace, clientcmd.FlagTimeout:
		default:
			flag.Hidden = true // The flag works, but is rarely needed.
		}
	})
	return cmd
}

// clientConfig combines the kubeconfig and the flags into a client configuration.
func (e *Env) clientConfig() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(e.rules, e.overrides)
}
