package provider_test

import (
	"errors"
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
