package certificate

import (
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testingclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Somebody else may keep the same Secret, and each write triggers the other.
//
// Rule: webhook-certificate-maintained.
func TestACertificateThatSomebodyUndoesIsMendedNowAndThen(t *testing.T) {
	at := testingclock.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "machinist-system", Name: "webhook"}}
	c := fake.NewClientBuilder().WithObjects(secret).Build()
	k := New(Options{
		Secret: client.ObjectKeyFromObject(secret), Configuration: "machinist", Hosts: []string{"machinist.example"},
		Writer: c, Clock: at, Log: logr.Discard(),
	})
	k.reader = c
	writes := 0
	for began := at.Now(); at.Since(began) < time.Minute; at.Step(50 * time.Millisecond) {
		if _, err := k.Reconcile(t.Context(), reconcile.Request{}); err != nil {
			t.Fatal(err)
		}
		if err := c.Get(t.Context(), k.Secret, secret); err != nil {
			t.Fatal(err)
		}
		if len(secret.Data) > 0 {
			writes++
			secret.Data = nil
			if err := c.Update(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
		}
	}
	if most := writeBurst + int(time.Minute/writePeriod); writes < writeBurst || writes > most {
		t.Errorf("the certificate was made %d times within a minute, want %d to %d", writes, writeBurst, most)
	}
}
