package provider_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"testing"

	"machinist.dev/machinist/pkg/provider"
)

type client struct{ number int }

func TestClientsAreSharedForTheSameCredentialsAndScope(t *testing.T) {
	var clients provider.Clients[*client]
	created := 0
	get := func(scope string, data map[string][]byte) *client {
		c, err := clients.Get(provider.NewCredentials(data), scope, func() (*client, error) {
			created++
			return &client{created}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	key := func(k, v string) map[string][]byte { return map[string][]byte{k: []byte(v)} }
	seen := map[*client]bool{}
	for range 2 {
		for _, c := range []*client{
			get("", key("token", "a")), get("", key("token", "b")), get("", key("tokena", "")), get("eu", key("token", "a")),
			get("", nil),
		} {
			seen[c] = true
		}
	}
	if created != 5 || len(seen) != 5 {
		t.Errorf("created %d clients and got %d for 5 combinations of credentials and scope", created, len(seen))
	}
}

func TestClientsDropsTheLeastRecentlyUsed(t *testing.T) {
	var clients provider.Clients[int]
	created := map[string]int{}
	get := func(token string) {
		_, err := clients.Get(provider.NewCredentials(map[string][]byte{"token": []byte(token)}), "", func() (int, error) {
			created[token]++
			return 0, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	get("kept")
	get("dropped")
	for i := range 63 {
		get(strconv.Itoa(i))
		get("kept")
	}
	get("dropped")
	if created["kept"] != 1 || created["dropped"] != 2 {
		t.Errorf("created the used client %d times and the unused one %d times; want 1 and 2", created["kept"],
			created["dropped"])
	}
}

func TestClientsDoesNotCacheErrors(t *testing.T) {
	var clients provider.Clients[int]
	broken := errors.New("no route")
	if _, err := clients.Get(provider.Credentials{}, "", func() (int, error) {
		return 0, broken
	}); !errors.Is(err, broken) {
		t.Errorf("got %v, want %v", err, broken)
	}
	if c, err := clients.Get(provider.Credentials{}, "", func() (int, error) { return 7, nil }); c != 7 || err != nil {
		t.Errorf("got %d, %v, want 7", c, err)
	}
}

func TestClientsGivesConcurrentCallersTheSameClient(t *testing.T) {
	var clients provider.Clients[*client]
	const callers = 16
	got := make([]*client, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			got[i], _ = clients.Get(provider.Credentials{}, "", func() (*client, error) { return &client{i}, nil })
		})
	}
	all.Wait()
	for _, c := range got {
		if c == nil || c != got[0] {
			t.Fatalf("got %v and %v", got[0], c)
		}
	}
}

func TestClientsCreatesANewClientAfterForget(t *testing.T) {
	var clients provider.Clients[int]
	created := 0
	get := func(token string) int {
		n, err := clients.Get(provider.NewCredentials(map[string][]byte{"token": []byte(token)}), "", func() (int, error) {
			created++
			return created, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	a, b := get("a"), get("b")
	clients.Forget(provider.NewCredentials(map[string][]byte{"token": []byte("a")}), "")
	clients.Forget(provider.NewCredentials(map[string][]byte{"token": []byte("unknown")}), "")
	if again := get("a"); again == a {
		t.Error("Get returned a client that was forgotten")
	}
	if get("b") != b {
		t.Error("Forget dropped the client of other credentials")
	}
}

// sessions is a cloud that accepts sessions until they end.
type sessions struct {
	clients  provider.Clients[int]
	opened   int
	ended    map[int]bool
	disposed []int
}

func newSessions() *sessions {
	s := &sessions{ended: map[int]bool{}}
	s.clients.Dispose = func(session int) { s.disposed = append(s.disposed, session) }
	return s
}

// call uses a session, and calls during while the session is in use.
func (s *sessions) call(t *testing.T, during func(session int)) (used []int, err error) {
	credentials := provider.NewCredentials(map[string][]byte{"token": []byte("a")})
	err = s.clients.Do(t.Context(), credentials, "", func(ctx context.Context) (int, error) {
		s.opened++
		return s.opened, ctx.Err()
	}, func(session int) error {
		used = append(used, session)
		if during != nil {
			during(session)
		}
		if s.ended[session] {
			return provider.Errorf(provider.Unauthenticated, "the session has ended")
		}
		return nil
	})
	return used, err
}

func TestDoReplacesARefusedClientOnce(t *testing.T) {
	s := newSessions()
	if used, err := s.call(t, nil); err != nil || len(used) != 1 {
		t.Fatalf("got error %v after %d calls", err, len(used))
	}
	s.ended[1] = true
	if used, err := s.call(t, nil); err != nil || !slices.Equal(used, []int{1, 2}) {
		t.Errorf("a session had ended: got error %v with the sessions %v, want success with 1 and 2", err, used)
	}
	s.ended[2], s.ended[3] = true, true
	used, err := s.call(t, nil)
	if provider.CodeOf(err) != provider.Unauthenticated || !slices.Equal(used, []int{2, 3}) {
		t.Errorf("the cloud refuses new sessions too: got error %v with the sessions %v, want an error with 2 and 3",
			err, used)
	}
	if want := []int{1, 2, 3}; !slices.Equal(s.disposed, want) {
		t.Errorf("disposed of %v, want %v", s.disposed, want)
	}
}

func TestDisposeWaitsForTheUsersOfAClient(t *testing.T) {
	s := newSessions()
	used, err := s.call(t, func(int) {
		s.clients.Close()
		if len(s.disposed) > 0 {
			t.Errorf("disposed of %v during its use", s.disposed)
		}
	})
	if err != nil || !slices.Equal(s.disposed, used) {
		t.Errorf("got error %v and disposed of %v, want %v", err, s.disposed, used)
	}
}

func TestDisposeIsCalledForEachDroppedClient(t *testing.T) {
	s := newSessions()
	open := func(token string) {
		t.Helper()
		credentials := provider.NewCredentials(map[string][]byte{"token": []byte(token)})
		_, err := s.clients.Get(credentials, "", func() (int, error) {
			s.opened++
			return s.opened, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range 65 {
		open(strconv.Itoa(i))
	}
	if !slices.Equal(s.disposed, []int{1}) {
		t.Errorf("disposed of %v, want the least recently used client", s.disposed)
	}
	s.clients.Close()
	s.clients.Close()
	if slices.Sort(s.disposed); len(s.disposed) != 65 || len(slices.Compact(s.disposed)) != 65 {
		t.Errorf("after Close, disposed of %d clients, want each of 65 once", len(s.disposed))
	}
}
