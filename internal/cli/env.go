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

// Env is what all commands share: where they write, how, and which cluster they ask.
type Env struct {
	// Out is for what was asked, Err for what is said beside it.
	Out, Err io.Writer
	// Terminal says that Out is one: a line may then be drawn again in place. Width is its width in columns, 0 when it
	// is none.
	Terminal bool
	Width    int
	// Colour says that text may be coloured: Out is a terminal, NO_COLOR is unset or empty, and TERM is not "dumb".
	Colour bool
	// Plain says that only ASCII must be drawn: Out is no terminal, or the locale is not one of UTF-8.
	Plain bool
	// Now is the clock that ages are reported by.
	Now func() time.Time

	// rules say which kubeconfig is read, and overrides what flags put in place of its content.
	rules     *clientcmd.ClientConfigLoadingRules
	overrides *clientcmd.ConfigOverrides
}

// NewEnv returns the environment of a command that writes to these two, as the process's variables want it.
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

// isUTF8 says whether a locale writes UTF-8.
func isUTF8(locale string) bool {
	locale = strings.ToLower(locale)
	return strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8")
}

// Add gives a command the flags that kubectl has for choosing a cluster, context, user and namespace, for itself and
// the commands under it.
func (e *Env) Add(cmd *cobra.Command) *cobra.Command {
	flags := cmd.PersistentFlags()
	flags.StringVar(&e.rules.ExplicitPath, "kubeconfig", "", "Path to the kubeconfig file to use for CLI requests.")
	clientcmd.BindOverrideFlags(e.overrides, flags, clientcmd.RecommendedConfigOverrideFlags(""))
	flags.VisitAll(func(flag *pflag.Flag) {
		switch flag.Name {
		case "kubeconfig", clientcmd.FlagContext, clientcmd.FlagNamespace, clientcmd.FlagTimeout:
		default:
			flag.Hidden = true // It works, and hardly anybody needs it.
		}
	})
	return cmd
}

// clientConfig is what the kubeconfig and the flags say.
func (e *Env) clientConfig() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(e.rules, e.overrides)
}
