package fakeazure

import (
	"crypto"
	"time"

	"machinist.dev/machinist/simcloud/host"
)

// Hosts are the machines inside the virtual machines. Neither method may block or call back.
type Hosts interface {
	Start(host.Spec, host.Reporter)
	Stop(id string)
}

// Options describe a tenant with one application and one subscription. IDs are required.
type Options struct {
	Tenant, Subscription string
	// Client is the application that may use the subscription.
	Client string
	// Actions are what the application's role allows. Nil is everything.
	Actions []string
	// Secret is its password; empty if it has none.
	Secret string
	// Certificate is the public key of its certificate; nil if it has none.
	Certificate crypto.PublicKey
	// FederatedIssuer is the public key of who issues the tokens of its workload identity, FederatedSubject whose they
	// are. Nil if it has none.
	FederatedIssuer  crypto.PublicKey
	FederatedSubject string

	// Location is the one region. Default: "westeurope".
	Location string
	// ResourceGroups exist from the start. Default: "machines".
	ResourceGroups []string
	// Subnets are resource IDs; each has room for 1000 addresses.
	Subnets []string

	// Boot, Stop and Change are how long it takes to make, to remove, stop or start, and to change something. The default
	// of each is no time at all.
	Boot, Stop, Change time.Duration
	// ListLag is how long lists show what was before.
	ListLag time.Duration
	// Semantics are what else Azure may do to its users.
	Semantics Semantics
	// PageSize bounds the pages of lists. Default: 50.
	PageSize int
	// CoreQuota is how many virtual CPUs the subscription may have. Default: 1000.
	CoreQuota int
	// Hosts are what boots. By default nothing does.
	Hosts Hosts
}

// Semantics are what a cloud may do to its users without being broken. By default it does none of it.
type Semantics struct {
	// NewUnknown is how long a read of one resource does not know that it was made; GoneKnown how long it knows one that
	// was removed.
	NewUnknown, GoneKnown time.Duration
	// TagsLate is how long reads and lists show a new resource without its tags.
	TagsLate time.Duration
	// StateBack is when after its creation, and for how long, a virtual machine is shown as one that is being created.
	StateBack time.Duration
	// StateFlickers lets every other read or list show a virtual machine that runs as one that is being created.
	StateFlickers bool
	// ListsMissPage lets every other list lack its first page; ListsRepeat have its first entry three times;
	// ListsReverse have the last entry first; ListsTurn do so every other time; ListsUpper spell resource groups in
	// upper case.
	ListsMissPage, ListsRepeat, ListsReverse, ListsTurn, ListsUpper bool
	// IDsUpper spells resource groups and names in resource IDs in upper case, in all that reads and lists answer.
	IDsUpper bool
	// ListPadding makes each page so many bytes longer.
	ListPadding int
	// QuotaLag is how long the cores of a machine that was removed count.
	QuotaLag time.Duration
	// TokenLife is after how long access tokens are refused, whatever clients were reported. Default: as they were
	// reported.
	TokenLife time.Duration
	// ClockSkew is how far Azure's clock is ahead. With it, Retry-After is a date.
	ClockSkew time.Duration
}

func (o Options) complete() Options {
	if o.Location == "" {
		o.Location = "westeurope"
	}
	if len(o.ResourceGroups) == 0 {
		o.ResourceGroups = []string{"machines"}
	}
	if o.PageSize <= 0 {
		o.PageSize = 50
	}
	if o.Semantics.TokenLife <= 0 {
		o.Semantics.TokenLife = tokenLife
	}
	if o.CoreQuota <= 0 {
		o.CoreQuota = 1000
	}
	return o
}

// size is a virtual machine size that is on offer.
type size struct {
	name     string
	cpus     int
	memoryGB int
	gpus     int
	arch     string
	zones    []string
	// restricted sizes are listed, and not for this subscription.
	restricted bool
}

func sizes() []size {
	zones := []string{"1", "2", "3"}
	return []size{
		{name: "Standard_D2s_v5", cpus: 2, memoryGB: 8, arch: "x64", zones: zones},
		{name: "Standard_D4s_v5", cpus: 4, memoryGB: 16, arch: "x64", zones: zones},
		{name: "Standard_D8s_v5", cpus: 8, memoryGB: 32, arch: "x64", zones: zones},
		{name: "Standard_D4ps_v5", cpus: 4, memoryGB: 16, arch: "Arm64", zones: zones[:2]},
		{name: "Standard_NC24ads_A100_v4", cpus: 24, memoryGB: 220, gpus: 1, arch: "x64", zones: zones[:1]},
		{name: "Standard_M128s", cpus: 128, memoryGB: 2048, arch: "x64", restricted: true},
	}
}

// image is one of the marketplace. With a plan it is sold, if for nothing.
type image struct {
	publisher, offer, sku string
	versions              []string
	plan                  bool
}

func images() []image {
	return []image{
		{publisher: "Canonical", offer: "0001-com-ubuntu-server-jammy", sku: "22_04-lts-gen2",
			versions: []string{"22.04.202506100", "22.04.202507010"}},
		{publisher: "kinvolk", offer: "flatcar-container-linux", sku: "stable-gen2", versions: []string{"4230.2.1"},
			plan: true},
	}
}
