package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/validation"

	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/internal/class/bootstrap/profile"
)

// BootstrapCommand returns the command "bootstrap" with its subcommands. The subcommands do not connect to a cluster.
func BootstrapCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bootstrap",
		Short: "Generate user data that joins machines to a cluster",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(renderCommand(env))
	return cmd
}

// renderFlags are the flags of "bootstrap render". Files are given by their paths, and pairs as KEY=VALUE.
type renderFlags struct {
	options                               profile.Options
	name, namespace, output               string
	runtime, kubelet                      string
	repositoryKey, kubeletConfig, caFile  string
	mirrors, sums, features, files, units []string
}

func renderCommand(env *Env) *cobra.Command {
	r := &renderFlags{}
	cmd := &cobra.Command{
		Use:   "render --profile PROFILE --name NAME",
		Short: "Print a Secret with the user-data template for a Linux distribution",
		Long: `Print a Secret with a user-data template that makes machines with a Linux distribution join the target cluster.

Profiles: ` + strings.Join(profile.Names(), ", ") + `.

A MachineClass refers to the Secret in userDataRef. Machinist replaces the placeholders in the template, such as
<<BOOTSTRAP_TOKEN>>, for each machine. The command does not connect to a cluster and applies nothing.`,
		Example: `  # Debian with the kubelet from a package repository
  machinist bootstrap render --profile debian --name workers \
    --package-repository https://packages.example/{minor}/deb/ --package-repository-key kubernetes.asc |
    kubectl apply -f -

  # Flatcar with a kubelet from a URL
  machinist bootstrap render --profile flatcar --name workers \
    --kubelet-url 'https://files.example/<<KUBELET_VERSION>>/kubelet' --kubelet-sha256 v1.36.3=CHECKSUM`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			manifest, err := r.secret(env.Err)
			if err != nil {
				return err
			}
			if r.output == "" || r.output == "-" {
				_, err = env.Out.Write(manifest)
				return err
			}
			// Only the owner may read the file: the template may contain a proxy password.
			if err := os.WriteFile(r.output, manifest, 0o600); err != nil {
				return fmt.Errorf("--output: %w", err)
			}
			return nil
		},
	}
	r.addFlags(cmd)
	return cmd
}

func (r *renderFlags) addFlags(cmd *cobra.Command) {
	f, o := cmd.Flags(), &r.options
	f.StringVar(&o.Profile, "profile", "", "one of: "+strings.Join(profile.Names(), ", ")+" (required)")
	f.StringVar(&r.name, "name", "", "name of the Secret (required)")
	f.StringVarP(&r.namespace, "namespace", "n", "", "namespace of the Secret (default: the manifest has no namespace)")
	f.StringVarP(&r.output, "output", "o", "", "file to write (default: standard output)")

	f.StringVar(&r.runtime, "runtime", "", "source of containerd: package or preinstalled (default: the profile's source)")
	f.StringArrayVar(&r.mirrors, "registry-mirror", nil, "REGISTRY=URL of a mirror of images; may be repeated")
	f.StringVar(&o.HTTPProxy, "http-proxy", "", "URL of the http proxy for containerd, kubelet and packages")
	f.StringVar(&o.HTTPSProxy, "https-proxy", "", "URL of the https proxy for containerd, kubelet and packages")
	f.StringVar(&o.NoProxy, "no-proxy", "", "hosts, domains and networks that are accessed without a proxy, separated by commas")
	f.StringArrayVar(&o.SSHKeys, "ssh-key", nil, "public key that may log in as the image's default user; may be repeated")
	f.BoolVar(&o.SetHostname, "set-hostname", false, "set the hostname to the name of the Machine, for clouds that do not set it")

	f.StringVar(&o.Server, "server", "", "URL of the servers that agents of k3s and RKE2 join (default for k3s: the URL of the API server)")

	f.StringVar(&r.kubelet, "kubelet", "", "source of the kubelet: packages, url or preinstalled (default: the profile's source)")
	f.StringVar(&o.PackageRepository, "package-repository", "", "URL of the kubelet's package repository; {minor} is replaced by the minor version, such as v1.36")
	f.StringVar(&r.repositoryKey, "package-repository-key", "", "file with the repository's OpenPGP key in ASCII armor")
	f.StringVar(&o.KubeletURL, "kubelet-url", "", "URL of the kubelet; <<KUBELET_VERSION>> is replaced by the version")
	f.StringArrayVar(&r.sums, "kubelet-sha256", nil, "VERSION=CHECKSUM of the kubelet at --kubelet-url; may be repeated")
	f.StringVar(&o.KubeletBinary, "kubelet-binary", "", "path of a preinstalled kubelet (default \"/usr/bin/kubelet\")")

	f.StringVar(&r.kubeletConfig, "kubelet-config", "", "file with a KubeletConfiguration to merge into the profile's configuration")
	f.StringSliceVar(&r.features, "feature-gates", nil, "feature gates of the kubelet, as NAME=true or NAME=false")
	f.StringSliceVar(&o.ClusterDNS, "cluster-dns", nil, "address of the cluster's DNS server; may be repeated")
	f.StringVar(&r.caFile, "client-ca", "", "file with the certificate authorities of the kubelet's clients (default: the authorities of the API server's certificate)")
	f.StringArrayVar(&r.files, "file", nil, "PATH=LOCAL, a local file to write to PATH on the machine; may be repeated")
	f.StringArrayVar(&r.units, "unit", nil, "NAME=LOCAL, a local file with a systemd unit to start on the machine; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("profile", cobra.FixedCompletions(profile.Names(), cobra.ShellCompDirectiveNoFileComp))
}

// secret returns the manifest of the Secret. The method warns about text that looks like a misspelled placeholder.
func (r *renderFlags) secret(warnings io.Writer) ([]byte, error) {
	if r.name == "" {
		return nil, errors.New("--name is not set: specify the name of the Secret")
	}
	if problems := validation.IsDNS1123Subdomain(r.name); len(problems) > 0 {
		return nil, fmt.Errorf("--name %q: %s", r.name, problems[0])
	}
	if problems := validation.IsDNS1123Label(r.namespace); r.namespace != "" && len(problems) > 0 {
		return nil, fmt.Errorf("--namespace %q: %s", r.namespace, problems[0])
	}
	if err := r.read(); err != nil {
		return nil, err
	}
	template, err := profile.Render(r.options)
	if err != nil {
		return nil, err
	}
	for _, unknown := range bootstrap.Suspicious(template) {
		fmt.Fprintf(warnings, "Warning: %s is not a placeholder and is not replaced. The placeholders are <<%s>>.\n", unknown,
			strings.Join(bootstrap.Placeholders(), ">>, <<"))
	}
	return profile.Secret(r.name, r.namespace, template), nil
}

func (r *renderFlags) read() error {
	o := &r.options
	o.Runtime, o.Kubelet = profile.Runtime(r.runtime), profile.KubeletSource(r.kubelet)
	for _, one := range []struct {
		flag, path string
		into       *[]byte
	}{{"package-repository-key", r.repositoryKey, &o.PackageRepositoryKey}, {"kubelet-config", r.kubeletConfig, &o.KubeletConfig},
		{"client-ca", r.caFile, &o.ClientCA}} {
		if one.path == "" {
			continue
		}
		content, err := os.ReadFile(one.path)
		if err != nil {
			return fmt.Errorf("--%s: %w", one.flag, err)
		}
		*one.into = append([]byte{}, content...) // The slice is not nil, even if the file is empty.
	}
	for _, mirror := range r.mirrors {
		registry, url, _ := strings.Cut(mirror, "=")
		o.Mirrors = append(o.Mirrors, profile.Mirror{Registry: registry, URL: url})
	}
	o.KubeletSHA256 = map[string]string{}
	for _, pair := range r.sums {
		version, sum, _ := strings.Cut(pair, "=")
		if other, twice := o.KubeletSHA256[version]; twice && other != sum {
			return fmt.Errorf("--kubelet-sha256 %q: the version also has another checksum", pair)
		}
		o.KubeletSHA256[version] = sum
	}
	o.FeatureGates = map[string]bool{}
	for _, pair := range r.features {
		feature, value, _ := strings.Cut(pair, "=")
		on, err := strconv.ParseBool(value)
		if err != nil {
			return fmt.Errorf("--feature-gates %q: write NAME=true or NAME=false", pair)
		}
		o.FeatureGates[feature] = on
	}
	return r.readMachineFiles()
}

func (r *renderFlags) readMachineFiles() error {
	for _, pair := range r.files {
		path, content, mode, err := readPair("--file", "PATH", pair)
		if err != nil {
			return err
		}
		r.options.Files = append(r.options.Files, profile.File{Path: path, Content: content, Executable: mode&0o100 != 0})
	}
	for _, pair := range r.units {
		name, content, _, err := readPair("--unit", "NAME", pair)
		if err != nil {
			return err
		}
		r.options.Units = append(r.options.Units, profile.Unit{Name: name, Content: content})
	}
	return nil
}

// readPair parses KEY=LOCAL and reads the local file. Errors use keyName for the key.
func readPair(flag, keyName, pair string) (key string, content []byte, mode os.FileMode, err error) {
	key, path, ok := strings.Cut(pair, "=")
	if !ok || key == "" || path == "" {
		return "", nil, 0, fmt.Errorf("%s %q: write %s=LOCAL, where LOCAL is a local file", flag, pair, keyName)
	}
	info, err := os.Stat(path)
	if err == nil {
		content, err = os.ReadFile(path)
	}
	if err != nil {
		return "", nil, 0, fmt.Errorf("%s %q: %w", flag, pair, err)
	}
	return key, content, info.Mode(), nil
}
