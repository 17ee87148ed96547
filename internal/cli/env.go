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
	"k8s.io/cli-runtime/pkg/genericclioptions"
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

	config *genericclioptions.ConfigFlags
}

// NewEnv returns the environment of a command that writes to these two, as the process's variables want it.
func NewEnv(out, err io.Writer) *Env {
	e := &Env{Out: out, Err: err, Plain: true, Now: time.Now, config: genericclioptions.NewConfigFlags(true)}
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
	e.config.AddFlags(cmd.PersistentFlags())
	for _, rare := range []string{"as", "as-uid", "as-group", "as-user-extra", "cache-dir", "certificate-authority",
		"client-certificate",
		"client-key", "cluster", "disable-compression", "insecure-skip-tls-verify", "server", "tls-server-name",
		"token", "user"} {
		hide(cmd.PersistentFlags(), rare)
	}
	return cmd
}

// hide keeps a flag working and leaves it out of the help.
func hide(flags *pflag.FlagSet, name string) {
	if flag := flags.Lookup(name); flag != nil {
		flag.Hidden = true
	}
}
