package app

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"

	"machinist.dev/machinist/internal/admission"
	"machinist.dev/machinist/internal/class/bootstrap/approval"
	"machinist.dev/machinist/internal/health/orphans"
	"machinist.dev/machinist/internal/machine"
	"machinist.dev/machinist/internal/machine/drain"
	"machinist.dev/machinist/internal/machine/interruption"
	"machinist.dev/machinist/internal/platform/sharding"
	"machinist.dev/machinist/pkg/provider/endpoints"
)

// settings are the flags of a provider process, in addition to those of all processes.
type settings struct {
	concurrentMachines int
	concurrentClasses  int
	concurrentDrains   int
	maxInFlightCreates int
	cloudQPS           float64
	cloudBurst         int
	bootstrapEndpoint  string
	bootstrapCAFile    string
	tokenGroups        []string
	secretNamespaces   []string
	approveKubeletCSRs bool
	guestAddresses     []string
	deniedAddresses    []string
	preserveTimeout    time.Duration
	preserveLimit      int
	requireTypeVersion bool
	interruptions      interruption.Flags
	orphans            orphans.Rules
	orphansAction      string
	webhook            admission.ServingOptions
}

const allNamespaces = "*"

// Values of --orphan-action.
const (
	deleteOrphans = "delete"
	reportOrphans = "report"
)

func defaultSettings() *settings {
	return &settings{
		concurrentMachines: 32, concurrentClasses: 4, concurrentDrains: drain.DefaultWorkers,
		cloudBurst: 10, approveKubeletCSRs: true, secretNamespaces: []string{allNamespaces},
		orphans: orphans.Rules{Period: orphans.DefaultPeriod, MinAge: orphans.DefaultMinAge,
			MaxDeletes: orphans.DefaultMaxDeletes},
		orphansAction:   deleteOrphans,
		preserveTimeout: machine.DefaultPreserveTimeout,
		preserveLimit:   machine.DefaultPreserveLimit,
	}
}

func (s *settings) addFlags(fs *pflag.FlagSet) {
	fs.IntVar(&s.concurrentMachines, "concurrent-machines", s.concurrentMachines,
		"number of machines that are reconciled concurrently")
	fs.IntVar(&s.concurrentClasses, "concurrent-classes", s.concurrentClasses,
		"number of MachineClasses that are reconciled concurrently")
	fs.IntVar(&s.concurrentDrains, "concurrent-drains", s.concurrentDrains,
		"number of nodes that are drained concurrently, at least 2; each node has at most one eviction at a time")
	fs.IntVar(&s.maxInFlightCreates, "max-in-flight-creates", s.maxInFlightCreates,
		"maximum number of instances that are being created at the same time, until they run; 0 means no limit")
	fs.Float64Var(&s.cloudQPS, "cloud-qps", s.cloudQPS,
		"maximum number of calls to the cloud per second, for the whole process; 0 means no limit")
	fs.IntVar(&s.cloudBurst, "cloud-burst", s.cloudBurst,
		"number of calls to the cloud that may exceed --cloud-qps in a burst")
	fs.StringVar(&s.bootstrapEndpoint, "bootstrap-endpoint", "",
		"URL of the target cluster's API server as instances reach it; by default, the server of the target kubeconfig")
	fs.StringVar(&s.bootstrapCAFile, "bootstrap-ca-file", "",
		"PEM file of the certificate authority that verifies --bootstrap-endpoint; by default, that of the target kubeconfig")
	fs.StringSliceVar(&s.tokenGroups, "bootstrap-token-groups", nil,
		"groups of a machine's bootstrap token in addition to system:bootstrappers:machinist, such as system:bootstrappers:k3s:default-node-token; the value nodeBootstrapper.tokenGroups of the chart machinist must list the same groups in the same order")
	fs.StringSliceVar(&s.secretNamespaces, "secret-namespaces", s.secretNamespaces,
		"namespaces whose Secrets the process may list and watch; * means all namespaces, or that of --namespace. Classes in other namespaces cannot refer to Secrets")
	fs.BoolVar(&s.approveKubeletCSRs, "approve-kubelet-csrs", s.approveKubeletCSRs,
		"approve the certificate requests of this provider's kubelets in the target cluster; if false, the target cluster needs another approver")
	fs.StringSliceVar(&s.guestAddresses, "approve-guest-addresses", nil,
		"range (CIDR) of addresses for which serving certificates are approved even if only the guest reports the address; can be repeated. A guest can report any address in these ranges, so they must not contain API servers or other hosts that clients trust. By default, there is none")
	fs.StringSliceVar(&s.deniedAddresses, "deny-serving-addresses", nil,
		"address or range (CIDR) for which no serving certificate is approved, such as the range of Services and the addresses of load balancers; can be repeated. The addresses of the API servers, of the Service kubernetes and of the local host are always denied")
	fs.DurationVar(&s.preserveTimeout, "preserve-timeout", s.preserveTimeout,
		"how long a machine that was preserved with the annotation machinist.dev/preserve is kept before it is deleted")
	fs.IntVar(&s.preserveLimit, "preserve-limit", s.preserveLimit,
		"maximum number of failed machines of one MachineDeployment or standalone MachineSet that are preserved at the same time (machinist.dev/preserve=when-failed); further failed machines are replaced as usual")
	fs.BoolVar(&s.requireTypeVersion, "require-type-version", s.requireTypeVersion,
		"do not launch or change machines that lack the label machinist.dev/type-version; machines that a MachineSet creates have the label")
	s.interruptions.AddFlags(fs)
	fs.DurationVar(&s.orphans.Period, "orphan-check-period", s.orphans.Period,
		"time between two checks for instances without a Machine; an instance is removed if two checks in a row find it; after an outage, nothing is removed for one such period")
	fs.DurationVar(&s.orphans.MinAge, "orphan-min-age", s.orphans.MinAge,
		"minimum age of an instance without a Machine before it is removed")
	fs.StringVar(&s.orphansAction, "orphan-action", s.orphansAction,
		"what to do with instances that have no Machine: delete or report")
	s.webhook.AddFlags(fs)
	fs.IntVar(&s.orphans.MaxDeletes, "orphan-max-deletes", s.orphans.MaxDeletes,
		"maximum number of instances without a Machine that one check removes")
}

// tokenGroup matches the group names that the bootstrap token authenticator of Kubernetes accepts.
var tokenGroup = regexp.MustCompile(`^system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]$`)

func (s *settings) validate() error {
	var errs []error
	for flag, value := range map[string]int{
		"concurrent-machines": s.concurrentMachines, "concurrent-classes": s.concurrentClasses,
		"concurrent-drains": s.concurrentDrains, "cloud-burst": s.cloudBurst,
	} {
		if value < 1 {
			errs = append(errs, fmt.Errorf("--%s is %d; it must be at least 1", flag, value))
		}
	}
	if s.maxInFlightCreates < 0 {
		errs = append(errs, fmt.Errorf("--max-in-flight-creates is %d; it must not be negative", s.maxInFlightCreates))
	}
	if err := s.webhook.Validate(); err != nil {
		errs = append(errs, err)
	}
	if s.cloudQPS < 0 {
		errs = append(errs, fmt.Errorf("--cloud-qps is %g; it must not be negative", s.cloudQPS))
	}
	if s.bootstrapEndpoint != "" {
		if u, err := url.Parse(s.bootstrapEndpoint); err != nil || u.Scheme != "https" || u.Host == "" {
			errs = append(errs, fmt.Errorf("--bootstrap-endpoint is %q; it must be a URL such as https://api.example.com:6443",
				s.bootstrapEndpoint))
		}
	}
	for _, group := range s.tokenGroups {
		if !tokenGroup.MatchString(group) {
			errs = append(errs, fmt.Errorf("--bootstrap-token-groups contains %q; group names must match %s", group, tokenGroup))
		}
	}
	for _, namespace := range s.secretNamespaces {
		if namespace == allNamespaces && len(s.secretNamespaces) == 1 {
			continue
		}
		if problems := validation.IsDNS1123Label(namespace); len(problems) > 0 {
			errs = append(errs, fmt.Errorf("--secret-namespaces contains %q, which is not the name of a namespace: %s", namespace,
				problems[0]))
		}
	}
	if len(s.secretNamespaces) == 0 {
		errs = append(errs, errors.New("--secret-namespaces is empty; it must name a namespace, or be *"))
	}
	if _, err := s.guestRanges(); err != nil {
		errs = append(errs, err)
	}
	if _, err := endpoints.ParseRanges(s.deniedAddresses); err != nil {
		errs = append(errs, fmt.Errorf("--deny-serving-addresses: %w", err))
	}
	if s.preserveTimeout < time.Second {
		errs = append(errs, fmt.Errorf("--preserve-timeout is %s; it must be at least 1s", s.preserveTimeout))
	}
	if s.preserveLimit < 1 {
		errs = append(errs, fmt.Errorf("--preserve-limit is %d; it must be at least 1", s.preserveLimit))
	}
	if _, err := s.interruptions.Signals(); err != nil {
		errs = append(errs, err)
	}
	if s.orphans.Period < time.Second {
		errs = append(errs, fmt.Errorf("--orphan-check-period is %s; it must be at least 1s", s.orphans.Period))
	}
	if s.orphans.MinAge < 0 {
		errs = append(errs, fmt.Errorf("--orphan-min-age is %s; it must not be negative", s.orphans.MinAge))
	}
	if s.orphans.MaxDeletes < 1 {
		errs = append(errs, fmt.Errorf("--orphan-max-deletes is %d; it must be at least 1 (to remove none, set --orphan-action=%s)",
			s.orphans.MaxDeletes, reportOrphans))
	}
	if s.orphansAction != deleteOrphans && s.orphansAction != reportOrphans {
		errs = append(errs, fmt.Errorf("--orphan-action is %q; it must be %s or %s", s.orphansAction, deleteOrphans,
			reportOrphans))
	}
	return errors.Join(errs...)
}

// guestRanges returns the ranges of --approve-guest-addresses. Addresses that only a guest reports are approved only in
// these ranges.
func (s *settings) guestRanges() ([]netip.Prefix, error) {
	ranges, err := endpoints.ParseRanges(s.guestAddresses)
	if err != nil {
		return nil, fmt.Errorf("--approve-guest-addresses: %w", err)
	}
	for _, r := range ranges {
		if r.Bits() == 0 {
			return nil, fmt.Errorf("--approve-guest-addresses contains %s; every guest would get a certificate for any address", r)
		}
	}
	return ranges, nil
}

// reservedNames returns the names and addresses for which no serving certificate is approved: those of the target
// cluster's API server that this process knows, and those in --deny-serving-addresses.
func (s *settings) reservedNames(target *rest.Config) (r approval.ReservedNames, err error) {
	if r.Ranges, err = endpoints.ParseRanges(s.deniedAddresses); err != nil {
		return r, fmt.Errorf("--deny-serving-addresses: %w", err)
	}
	server, _, err := rest.DefaultServerUrlFor(target)
	if err != nil {
		return r, fmt.Errorf("parse the server of the target kubeconfig: %w", err)
	}
	r.Hosts = append(r.Hosts, server.Hostname())
	if u, err := url.Parse(s.bootstrapEndpoint); err == nil && u.Host != "" {
		r.Hosts = append(r.Hosts, u.Hostname())
	}
	return r, nil
}

func (s *settings) orphanRules(clusterID, namespace string, shard sharding.Shard) orphans.Rules {
	r := s.orphans
	r.ClusterID, r.Namespace, r.Shard = clusterID, namespace, shard
	r.ReportOnly = s.orphansAction == reportOrphans
	return r
}

func (s *settings) limiter() *rate.Limiter {
	if s.cloudQPS == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(s.cloudQPS), s.cloudBurst)
}

// targetAPI returns a function that returns the address and the certificate authority of the target cluster's API
// server for instances. Flags take precedence. Each call reads the other values from the target kubeconfig. targetAPI
// fails if the file of --bootstrap-ca-file is missing.
func (s *settings) targetAPI(kubeconfig func() (*rest.Config, error)) (func() (machine.Endpoint, error), error) {
	var flagCA []byte
	if s.bootstrapCAFile != "" {
		var err error
		if flagCA, err = os.ReadFile(s.bootstrapCAFile); err != nil {
			return nil, fmt.Errorf("read --bootstrap-ca-file: %w", err)
		}
	}
	return func() (machine.Endpoint, error) {
		api := machine.Endpoint{URL: s.bootstrapEndpoint, CABundle: flagCA}
		if api.URL != "" && flagCA != nil {
			return api, nil
		}
		target, err := kubeconfig()
		if err != nil {
			return machine.Endpoint{}, err
		}
		if api.URL == "" {
			u, _, err := rest.DefaultServerUrlFor(target)
			if err != nil {
				return machine.Endpoint{}, fmt.Errorf("parse the server of the target kubeconfig: %w", err)
			}
			api.URL = u.Scheme + "://" + u.Host
		}
		switch {
		case flagCA != nil:
		case len(target.CAData) > 0:
			api.CABundle = target.CAData
		case target.CAFile != "":
			if api.CABundle, err = os.ReadFile(target.CAFile); err != nil {
				return machine.Endpoint{}, fmt.Errorf("read the certificate authority of the target kubeconfig: %w", err)
			}
		}
		return api, nil
	}, nil
}
