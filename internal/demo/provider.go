package demo

import "fmt"

// Provider is whose machines the demo shows. It is a flag.
type Provider string

// The providers. The zero value is Sim.
const (
	// Sim has the simulated cloud.
	Sim Provider = "sim"
	// AzureFake has the Azure provider with an Azure in memory.
	AzureFake Provider = "azure-fake"
)

// String implements pflag.Value.
func (p *Provider) String() string {
	if *p == "" {
		return string(Sim)
	}
	return string(*p)
}

// Set implements pflag.Value.
func (p *Provider) Set(name string) error {
	switch Provider(name) {
	case Sim, AzureFake:
		*p = Provider(name)
		return nil
	}
	return fmt.Errorf("there are %s and %s", Sim, AzureFake)
}

// Type implements pflag.Value.
func (p *Provider) Type() string { return "provider" }
