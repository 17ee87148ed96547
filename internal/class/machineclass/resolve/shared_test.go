package resolve_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/class/machineclass/resolve"
)

// server answers a read when the test sends a value to the channel. Reads are numbered in the order in which they
// begin, and the returned Secret contains the number.
type server struct {
	client.Reader
	answers chan error

	mu    sync.Mutex
	reads int
}

func newServer() *server { return &server{answers: make(chan error, 100)} }

func (s *server) Get(ctx context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	s.mu.Lock()
	s.reads++
	n := s.reads
	s.mu.Unlock()
	select {
	case err := <-s.answers:
		o.(*corev1.Secret).Data = map[string][]byte{"n": fmt.Append(nil, n)}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

type answer struct {
	n   string
	err error
}

func ask(ctx context.Context, r client.Reader, name string) chan answer {
	out := make(chan answer, 1)
	go func() {
		secret := &corev1.Secret{}
		err := r.Get(ctx, client.ObjectKey{Name: name}, secret)
		out <- answer{string(secret.Data["n"]), err}
	}()
	return out
}

// A caller that arrives during a read must not get the result of that read, because the result may be too old.
func TestConcurrentReadsOfASecretAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		r := resolve.NewSharedReader(s)
		first := ask(t.Context(), r, "a")
		synctest.Wait()
		var rest []chan answer
		for range 20 {
			rest = append(rest, ask(t.Context(), r, "a"))
		}
		other := ask(t.Context(), r, "b")
		synctest.Wait()
		if s.reads != 2 {
			t.Fatalf("%d reads have begun, want one for each Secret", s.reads)
		}
		s.answers <- nil
		s.answers <- nil
		if a := <-first; a.err != nil || a.n != "1" {
			t.Errorf("the first caller got %+v", a)
		}
		if a := <-other; a.err != nil || a.n != "2" {
			t.Errorf("the caller for another Secret got %+v", a)
		}
		s.answers <- nil
		for _, c := range rest {
			if a := <-c; a.err != nil || a.n != "3" {
				t.Errorf("a caller that arrived during the first read got %+v", a)
			}
		}
	})
}

func TestAnswersAreNotCached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		r := resolve.NewSharedReader(s)
		for _, want := range []string{"1", "2", "3"} {
			s.answers <- nil
			if a := <-ask(t.Context(), r, "a"); a.err != nil || a.n != want {
				t.Errorf("got %+v, want read %s", a, want)
			}
		}
	})
}

func TestErrorOfASharedReadIsReturnedToEachCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, refused := newServer(), errors.New("refused")
		r := resolve.NewSharedReader(s)
		first := ask(t.Context(), r, "a")
		synctest.Wait()
		second, third := ask(t.Context(), r, "a"), ask(t.Context(), r, "a")
		synctest.Wait()
		s.answers <- nil
		s.answers <- refused
		if a := <-first; a.err != nil {
			t.Errorf("the first caller got %+v", a)
		}
		for _, c := range []chan answer{second, third} {
			if a := <-c; !errors.Is(a.err, refused) {
				t.Errorf("a caller of the refused read got %+v", a)
			}
		}
		s.answers <- nil
		if a := <-ask(t.Context(), r, "a"); a.err != nil || a.n != "3" {
			t.Errorf("after an error: %+v", a)
		}
	})
}

func TestCallerThatGivesUpDoesNotAffectOthers(t *testing.T) {
	for name, next := range map[string]bool{"the next to read": true, "a waiting caller": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				r := resolve.NewSharedReader(s)
				ctx, giveUp := context.WithCancel(t.Context())
				impatient := []chan answer{ask(ctx, r, "a")}
				synctest.Wait()
				if next {
					impatient = append(impatient, ask(ctx, r, "a"))
					synctest.Wait()
				}
				var patient []chan answer
				for range 5 {
					patient = append(patient, ask(t.Context(), r, "a"))
				}
				synctest.Wait()
				impatient = append(impatient, ask(ctx, r, "a"))
				synctest.Wait()
				giveUp()
				for _, c := range impatient {
					if a := <-c; !errors.Is(a.err, context.Canceled) {
						t.Errorf("a caller that gave up got %+v", a)
					}
				}
				for range patient {
					s.answers <- nil
				}
				for _, c := range patient {
					if a := <-c; a.err != nil || a.n == "1" {
						t.Errorf("a caller that did not give up got %+v", a)
					}
				}
				s.answers <- nil
				if a := <-ask(t.Context(), r, "a"); a.err != nil {
					t.Errorf("a later caller got %+v", a)
				}
			})
		})
	}
}
