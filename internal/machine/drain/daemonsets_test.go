package drain

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestDaemonSetsAreReadOnceAMinute(t *testing.T) {
	agents := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}}
	agents.Namespace, agents.Name, agents.UID = "a", "agents", "agents"
	b := newBench(t, agents, aNode("m1"), aNode("m3"),
		on("m1", aPod("a/agent-1", ofDaemonSet("agents"))), on("m2", aPod("a/agent-2", ofDaemonSet("agents"))),
		on("m3", aPod("a/old-3", ofDaemonSet("gone"))),
		on("m4", aPod("a/agent-4", ownedBy("other/v1", "DaemonSet", "others"))))
	reads := func(machine string) int {
		b.reads = 0
		b.drain(machine)
		b.runPass(machine)
		if !b.drain(machine).IsDone {
			t.Errorf("%s is not done", machine)
		}
		return b.reads
	}
	for i, test := range []struct {
		machine string
		after   time.Duration
		want    int
	}{{"m1", 0, 2}, {"m2", 59 * time.Second, 1}, {"m2", time.Second, 2}, {"m4", 0, 1}} {
		b.pass(test.after)
		b.Forget(key(test.machine))
		if got := reads(test.machine); got != test.want {
			t.Errorf("%d: %d reads for %s, want %d", i, got, test.machine, test.want)
		}
	}
	b.drain("m3")
	b.runPass("m3")
	b.expectEvictions("old-3")
}
