package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/class/preflight"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/platform/wording"
)

type preflightOptions struct {
	target, endpoint, authority, format string
	noTarget, probe                     bool
}

func preflightCommand(env *Env) *cobra.Command {
	var o preflightOptions
	cmd := &cobra.Command{
		Use:   "preflight",
		Short: "Check whether machines can join a cluster, and what prevents it",
		Long: `Check the control cluster and the target cluster for problems that prevent machines from becoming nodes: permissions of
bootstrap tokens, signers of certificates, the API server's address in user data, clocks, versions, CRDs of other
systems with the same resource names, webhooks without a server, network plugins. Each finding contains a fix. The
command uses your permissions, and lists the checks that need more permissions. It fails if a finding is an error.

Without --probe, the command only reads. With --probe, it creates a bootstrap token, requests a kubelet certificate with
the token, approves the request, waits until the certificate is signed, and deletes the token and the request.`,
		Example: `  # The control cluster is also the target cluster
  machinist preflight

  # The target cluster is another one, and machines use another address than its kubeconfig
  machinist preflight --target-kubeconfig=target.yaml --bootstrap-endpoint=https://api.example.com:6443

  # Also request a certificate as a test
  machinist preflight --probe`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := checkFormat(o.format); err != nil {
				return err
			}
			c, err := env.Connect()
			if err != nil {
				return err
			}
			view, err := o.check(cmd.Context(), c)
			if err != nil {
				return err
			}
			if err := env.Print(view, o.format); err != nil {
				return err
			}
			if n := view.errors(); n > 0 {
				return fmt.Errorf("machines cannot join the cluster: %s", wording.Count(n, "error"))
			}
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.target, "target-kubeconfig", "", "kubeconfig of the target cluster, which machines join (default: the control cluster)")
	flags.BoolVar(&o.noTarget, "no-target", false, "there is no target cluster: skip its checks")
	flags.StringVar(&o.endpoint, "bootstrap-endpoint", "", "URL of the target cluster's API server in user data, as in the provider's flag "+
		"(default: the URL in the target kubeconfig)")
	flags.StringVar(&o.authority, "bootstrap-ca-file", "", "PEM file with the certificate authority of --bootstrap-endpoint "+
		"(default: the authority in the target kubeconfig)")
	flags.BoolVar(&o.probe, "probe", false, "also create and delete a bootstrap token and a certificate request as a test")
	outputFlag(cmd, &o.format)
	return cmd
}

type preflightView struct {
	Findings []preflight.Finding `json:"findings"`
	// ReadErrors holds error messages: one sentence for each check that failed to run.
	ReadErrors []string `json:"unread,omitempty"`
}

func (v *preflightView) errors() (n int) {
	for _, f := range v.Findings {
		if !f.Warning {
			n++
		}
	}
	return n
}

// Text implements View.
func (v *preflightView) Text(w io.Writer, style Style) error {
	out := &strings.Builder{}
	for _, f := range v.Findings {
		kind := style.Red("Error:")
		if f.Warning {
			kind = style.Warn("Warning:")
		}
		fmt.Fprintf(out, "%s %s: %s\n  %s\n", kind, f.Reason, printer.Sanitize(f.Message), printer.Sanitize(f.Fix))
	}
	for _, u := range v.ReadErrors {
		fmt.Fprintf(out, "%s\n", style.Dim("Not checked: "+printer.Sanitize(u)))
	}
	if len(v.Findings) == 0 {
		out.WriteString("No problems found: machines can join the cluster.\n")
	}
	_, err := io.WriteString(w, out.String())
	return err
}

// add appends the findings of a check. Each line of err is the error message of a check that failed to run.
func (v *preflightView) add(found []preflight.Finding, err error) {
	for _, f := range found {
		if !slices.Contains(v.Findings, f) {
			v.Findings = append(v.Findings, f)
		}
	}
	if err != nil {
		v.ReadErrors = append(v.ReadErrors, strings.Split(err.Error(), "\n")...)
	}
}

func (o preflightOptions) check(ctx context.Context, control *Cluster) (*preflightView, error) {
	v := &preflightView{Findings: []preflight.Finding{}}
	checks, err := checksOf(control)
	if err != nil {
		return nil, err
	}
	if _, err := checks.Discovery.ServerVersion(); err != nil {
		return nil, control.Explain(err)
	}
	v.add(checks.Control(ctx))
	if o.noTarget {
		return v, nil
	}
	target := control
	if o.target != "" {
		if target, err = connectTo(o.target); err != nil {
			return nil, err
		}
		if checks, err = checksOf(target); err != nil {
			return nil, err
		}
	}
	server, err := checks.Discovery.ServerVersion()
	if err != nil {
		return nil, target.Explain(err)
	}
	join := preflight.Join{Target: target, Endpoint: o.endpoint, Version: server.GitVersion, Now: time.Now}
	if join.CABundle, err = o.bundle(target.config); err != nil {
		return nil, err
	}
	if join.Endpoint == "" {
		join.Endpoint = target.config.Host
	}
	service := &corev1.Service{}
	key := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}
	if err := target.Get(ctx, key, service); err == nil {
		join.Service = service.Spec.ClusterIP
	}
	v.add(join.Findings(ctx))
	v.add(checks.Target(ctx))
	if o.probe {
		v.add(preflight.Probe(ctx, target, target.config, time.Now()))
	}
	return v, nil
}

func (o preflightOptions) bundle(config *rest.Config) ([]byte, error) {
	switch {
	case o.authority != "":
		bundle, err := os.ReadFile(o.authority)
		if err != nil {
			return nil, fmt.Errorf("--bootstrap-ca-file: %w", err)
		}
		return bundle, nil
	case len(config.CAData) > 0 || config.CAFile == "":
		return config.CAData, nil
	}
	bundle, err := os.ReadFile(config.CAFile)
	if err != nil {
		return nil, fmt.Errorf("read the certificate authority of the target kubeconfig: %w", err)
	}
	return bundle, nil
}

func checksOf(c *Cluster) (preflight.Cluster, error) {
	d, err := discovery.NewDiscoveryClientForConfig(c.config)
	if err != nil {
		return preflight.Cluster{}, fmt.Errorf("create a discovery client: %w", err)
	}
	return preflight.Cluster{Reader: c, Discovery: d, Now: time.Now}, nil
}

func connectTo(kubeconfig string) (*Cluster, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--target-kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 50, 100
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme()})
	if err != nil {
		return nil, explain(err, config.Host)
	}
	return &Cluster{WithWatch: c, server: config.Host, config: config}, nil
}
