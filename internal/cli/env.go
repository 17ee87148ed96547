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

// Env is the environment of all commands: their outputs, the style of text, and the choice of the cluster.
type Env struct {
	// Out receives results, Err receives notes, warnings and progress.
	Out, Err io.Writer
	// Terminal is true if Out is a terminal, where a line can be drawn again in place. Width is its width in columns, or
	// 0 if Out is not a terminal.
	Terminal bool
	Width    int
	// Colour allows coloured text: Out is a terminal, NO_COLOR is unset or empty, and TERM is not "dumb".
	Colour bool
	// Plain restricts text to ASCII: Out is not a terminal, or the locale does not use UTF-8.
	Plain bool
	// Now is the clock for the ages in reports.
	Now func() time.Time

	// rules choose the kubeconfig. overrides are the values of flags that replace its content.
	rules     *clientcmd.ClientConfigLoadingRules
	overrides *clientcmd.ConfigOverrides
}

// NewEnv returns an environment that writes to out and err. The process's environment variables determine its style.
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

// isUTF8 reports whether a locale uses UTF-8.
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
			flag.Hidden = true // The flag works, but is rarely needed.
		}
	})
	return cmd
}

// clientConfig returns the client configuration from the kubeconfig and the flags.
func (e *Env) clientConfig() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(e.rules, e.overrides)
}
