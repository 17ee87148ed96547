package provider_test

import (
	"errors"
	"strconv"
	"sync"
	"testing"

	"machinist.dev/machinist/pkg/provider"
)

type client struct{ number int }

func TestClientsAreSharedByThoseWithTheSameCredentialsAndScope(t *testing.T) {
	var clients provider.Clients[*client]
	made := 0
	get := func(scope string, data map[string][]byte) *client {
		c, err := clients.Get(provider.NewCredentials(data), scope, func() (*client, error) {
			made++
			return &client{made}, nil
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
	if made != 5 || len(seen) != 5 {
		t.Errorf("made %d clients and got %d for 5 kinds of caller", made, len(seen))
	}
}

func TestClientsForgetsTheOneUnusedForLongest(t *testing.T) {
	var clients provider.Clients[int]
	made := map[string]int{}
	get := func(token string) {
		_, err := clients.Get(provider.NewCredentials(map[string][]byte{"token": []byte(token)}), "", func() (int, error) {
			made[token]++
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
	if made["kept"] != 1 || made["dropped"] != 2 {
		t.Errorf("made the one in use %d times, the other %d times; want 1 and 2", made["kept"], made["dropped"])
	}
}

func TestClientsDoesNotRememberErrors(t *testing.T) {
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

func TestClientsGivesAllThatCallAtOnceTheSame(t *testing.T) {
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

func TestAClientThatIsForgottenIsMadeAnew(t *testing.T) {
	var clients provider.Clients[int]
	made := 0
	get := func(token string) int {
		n, err := clients.Get(provider.NewCredentials(map[string][]byte{"token": []byte(token)}), "", func() (int, error) {
			made++
			return made, nil
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
		t.Error("a client that was forgotten serves on")
	}
	if get("b") != b {
		t.Error("another one was forgotten as well")
	}
}
