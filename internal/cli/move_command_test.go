package cli

import (
	"testing"

	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/env/inmemory"
)

func TestMoveRejectsImpossibleMoves(t *testing.T) {
	p := newTestFleet(t)
	p.fleet()
	here, elsewhere := env.Kubeconfig(), inmemory.WithoutMachinist(t)
	ids := []string{"--cluster-id=a", "--to-cluster-id=b"}
	for name, test := range map[string]struct {
		args     []string
		mentions []string
	}{
		"no destination": {nil, []string{"--to-context", "--to-kubeconfig"}},
		"too long":       {[]string{"--to-kubeconfig", here, "--timeout=25h"}, []string{"--timeout 25h0m0s", "24h"}},
		"all, and one":   {[]string{"md/web", "-A", "--to-kubeconfig", here}, []string{"-A moves everything"}},
		"a machine": {[]string{"machine/web-1-a", "--to-kubeconfig", here},
			[]string{`"machine"`, "machinedeployment"}},
		"no file": {[]string{"--to-kubeconfig", "/does/not/exist"},
			[]string{"the destination", "/does/not/exist"}},
		"without its id": {[]string{"--to-kubeconfig", here}, []string{"no cluster ID found"}},
		"the same cluster": {append(ids, "--to-kubeconfig", here),
			[]string{"are the same cluster", "nothing was changed"}},
		"a cluster without CRDs": {append(ids, "--to-kubeconfig", elsewhere),
			[]string{"does not serve Machinist's kinds"}},
		"no such deployment": {append(ids, "md/wbe", "--to-kubeconfig", here),
			[]string{`machinedeployment "wbe" not found`}},
	} {
		t.Run(name, func(t *testing.T) {
			p.run(append([]string{"move"}, test.args...)...).fails(t, test.mentions...)
		})
	}
}
