package machine

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"machinist.dev/machinist/api/v1beta1"
)

// The report costs one write.
//
// Rule: slow-join-explained.
func TestConditionReportsHowFarTheKubeletCame(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		arrange func(w *world, user string)
		message string
	}{
		"no request":                        {func(*world, string) {}, "No kubelet has requested a certificate for a node named"},
		"a pending request":                 {func(w *world, user string) { w.requested("m", user) }, "is not approved"},
		"a denied request":                  {func(w *world, user string) { w.certified("m", user, denied) }, "was denied"},
		"an unsigned request":               {func(w *world, user string) { w.certified("m", user, unsigned) }, "no signer has signed it"},
		"a certificate":                     {func(w *world, user string) { w.certified("m", user) }, "received its certificate"},
		"a certificate and another request": {func(w *world, user string) { w.certified("m", user); w.requested("other", user) }, "received its certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", joinsWithToken)
			user := w.launched("m")
			tc.arrange(w, user)
			message := func() string {
				return meta.FindStatusCondition(w.get("m").Status.Conditions, v1beta1.ConditionRegistered).Message
			}
			w.step(requestGrace - time.Second)
			w.reconcile("m")
			if strings.Contains(message(), tc.message) {
				t.Errorf("too early: %s", message())
			}
			w.effects.clear()
			w.step(time.Second)
			w.reconcile("m")
			if !strings.Contains(message(), tc.message) {
				t.Errorf("the message is %q, want %q in it", message(), tc.message)
			}
			want(t, "writes", w.effects.writes(), "API Machine patch status")
			w.effects.clear()
			w.step(requestGrace)
			w.reconcile("m")
			want(t, "later writes", w.effects.writes())
			w.step(requestsKept)
			w.reconcile("m")
			if message := message(); strings.Contains(message, "No kubelet") {
				t.Errorf("after the requests may have been deleted, the message is %q", message)
			}
		})
	}
}
