package fidelity

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/env"
)

func TestMain(m *testing.M) { os.Exit(env.Main(m)) }

var (
	traces = flag.Int("traces", 200, "number of traces to compare")
	first  = flag.Uint64("seed", 1, "seed of the first trace")
)

const operations = 30

func TestTracesMatchRealServer(t *testing.T) {
	kube := env.Client(t)
	for i := range *traces {
		seed := *first + uint64(i)
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			t.Parallel()
			compare(t, kube, seed)
		})
	}
}

func compare(t *testing.T, kube client.Client, seed uint64) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "trace-"}}
	if err := kube.Create(background, ns); err != nil {
		t.Fatalf("create a namespace: %v", err)
	}
	namespace := ns.Name
	server := apiserver.New(env.Scheme(), time.Now)
	clients := []*testClient{newTestClient(kube, namespace), newTestClient(server.Client("trace"), namespace)}
	r := rand.New(rand.NewPCG(seed, 0))
	var log []string
	// Use at most two kinds, so that many requests of the trace affect the same objects.
	kinds := []sample{pick(r), pick(r)}
	for range operations {
		s := kinds[r.IntN(len(kinds))]
		op := ops[r.IntN(len(ops))]
		slot, actor, choice := fmt.Sprint(s.name, "-", r.IntN(2)), r.IntN(actors), r.Uint64()
		var outcomes [2]string
		for i, w := range clients {
			o := &operation{Rand: rand.New(rand.NewPCG(choice, 0)), testClient: w, sample: s, actor: actor, slot: slot}
			outcomes[i] = op(o)
			if i == 0 {
				log = append(log, fmt.Sprintf("actor %d, %s: %s", actor, slot, o.name))
			}
		}
		if outcomes[0] != outcomes[1] {
			t.Fatalf("seed %d:\n%s\nreal:  %s\nstore: %s\n%s", seed, strings.Join(log, "\n"), outcomes[0], outcomes[1],
				cmp.Diff(pretty(outcomes[0]), pretty(outcomes[1])))
		}
	}
	for _, s := range kinds {
		var outcomes [2]string
		for i, w := range clients {
			o := &operation{testClient: w, sample: s}
			outcomes[i] = o.all()
		}
		if outcomes[0] != outcomes[1] {
			t.Fatalf("seed %d:\n%s\nat the end:\nreal:  %s\nstore: %s", seed, strings.Join(log, "\n"), outcomes[0], outcomes[1])
		}
	}
}

func pretty(outcome string) any {
	_, text, _ := strings.Cut(outcome, "{")
	var value any
	if json.Unmarshal([]byte("{"+text), &value) != nil {
		return outcome
	}
	return value
}

func pick(r *rand.Rand) sample {
	total := 0
	for _, s := range samples {
		total += s.weight
	}
	n := r.IntN(total)
	for _, s := range samples {
		if n -= s.weight; n < 0 {
			return s
		}
	}
	panic("unreachable")
}
