package fakeazure

import (
	"crypto"
	"time"

	"machinist.dev/machinist/simcloud/host"
)

// Hosts runs the machines inside virtual machines. The methods of Hosts must not block or call back.
type Hosts interface {
	Start(host.Spec, host.Reporter)
	Stop(id string)
}

// Options describe a tenant with one application and one subscription. The IDs are required.
type Options struct {
	Tenant, Subscription string
	// Client is the ID of the application that may use the subscription.
	Client string
	// Actions are the actions that the role of the application allows. Nil allows all.
	Actions []string
	// Secret is the secret of the application, or empty.
	Secret string
	// Certificate is the public key of the application's certificate, or nil.
	Certificate crypto.PublicKey
	// FederatedIssuer is the public key of the issuer of the application's workload identity, or nil. FederatedSubject
	// is the subject of the workload identity's tokens.
	FederatedIssuer  crypto.PublicKey
	FederatedSubject string

	// Location is the name of the fake Azure's only region. Default: "westeurope".
	Location string
	// ResourceGroups exist from the start. Default: "machines".
	ResourceGroups []string
	// Subnets are resource IDs. Each subnet has 1000 addresses.
	Subnets []string

	// BootDuration, StopDuration and ChangeDuration are the durations of creations, deletions, and all other
	// operations. Default: 0.
	BootDuration, StopDuration, ChangeDuration time.Duration
	// ListLag is how long lists show the previous state after a change.
	ListLag time.Duration
	// Semantics simulate delays and inconsistencies of Azure.
	Semantics Semantics
	// PageSize is the maximum page size of lists. Default: 50.
	PageSize int
	// CoreQuota is the quota of virtual CPUs. Default: 1000.
	CoreQuota int
	// Hosts runs the machines. Without Hosts, virtual machines exist but run no guest.
	Hosts Hosts
}

// Semantics simulate delays and inconsistencies of a healthy cloud, such as outdated reads. The zero value simulates a
// cloud without delays and inconsistencies.
type Semantics struct {
	// ReadsMissNew is how long Get does not find a new resource. ReadsShowDeleted is how long Get still finds a deleted
	// resource.
	ReadsMissNew, ReadsShowDeleted time.Duration
	// TagsLate is the age up to which responses contain a new resource without its tags.
	TagsLate time.Duration
	// StateReverts is the age at which the provisioning state of a virtual machine returns to "Creating". When the
	// virtual machine is twice as old, its state changes to "Succeeded" again.
	StateReverts time.Duration
	// StateFlickers makes every second read or list report the previous power state of a virtual machine, or the state
	// "Creating" if its power state never changed.
	StateFlickers bool
	// ListsMissPage omits the first page of every second list. ListsRepeat returns the first entry three times.
	// ListsReverse reverses all lists, and ListsTurn reverses every second list. ListsUpper makes lists return IDs
	// whose resource group is in upper case.
	ListsMissPage, ListsRepeat, ListsReverse, ListsTurn, ListsUpper bool
	// IDsUpper makes all reads and lists return IDs whose resource group and name are in upper case.
	IDsUpper bool
	// ListPadding is the number of bytes added to each page.
	ListPadding int
	// QuotaLag is how long the cores of a deleted machine still count against the quota.
	QuotaLag time.Duration
	// TokenLife is the age at which access tokens are refused. Default: the lifetime in the response with the token.
	TokenLife time.Duration
	// ClockSkew is how far Azure's clock is ahead of the local clock. If ClockSkew is set, the header Retry-After
	// contains a date instead of seconds.
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

// size is a virtual machine size.
type size struct {
	name     string
	cpus     int
	memoryGB int
	gpus     int
	arch     string
	zones    []string
	// isRestricted is true if this subscription cannot use the listed size.
	isRestricted bool
}

func sizes() []size {
	zones := []string{"1", "2", "3"}
	return []size{
		{name: "Standard_D2s_v5", cpus: 2, memoryGB: 8, arch: "x64", zones: zones},
		{name: "Standard_D4s_v5", cpus: 4, memoryGB: 16, arch: "x64", zones: zones},
		{name: "Standard_D8s_v5", cpus: 8, memoryGB: 32, arch: "x64", zones: zones},
		{name: "Standard_D4ps_v5", cpus: 4, memoryGB: 16, arch: "Arm64", zones: zones[:2]},
		{name: "Standard_NC24ads_A100_v4", cpus: 24, memoryGB: 220, gpus: 1, arch: "x64", zones: zones[:1]},
		{name: "Standard_M128s", cpus: 128, memoryGB: 2048, arch: "x64", isRestricted: true},
	}
}

// image is an image of the marketplace. If plan is set, its terms must be accepted.
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
