package demo

import (
	"context"
	"io"
	"strings"
	"testing"
)

func TestTheProviderIsOneThatThereIs(t *testing.T) {
	var p Provider
	if p.String() != "sim" {
		t.Errorf("by default it is %s", p.String())
	}
	for name, refused := range map[string]bool{"sim": false, "azure-fake": false, "azure": true, "": true} {
		if err := p.Set(name); (err != nil) != refused {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := p.Set("azure-fake"); err != nil || p != AzureFake || p.String() != "azure-fake" {
		t.Errorf("got %q, %v", p, err)
	}
}

func TestNoScenarioIsPlayedWithAzure(t *testing.T) {
	err := Run(context.Background(), Options{Provider: AzureFake, Scenario: "drain", Out: io.Discard})
	if err == nil || !strings.Contains(err.Error(), "the scenarios") {
		t.Errorf("got %v", err)
	}
}
