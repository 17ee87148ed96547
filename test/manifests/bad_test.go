package manifests

import "testing"

func TestTableHasEnoughManifests(t *testing.T) {
	const least = 400 // minimum number of entries, without the entries that wrongTypes derives from the schemas
	byHand, guards, names := len(InvalidObjects())-len(wrongTypes()), map[Guard]int{}, map[string]bool{}
	for _, b := range InvalidObjects() {
		guards[b.By]++
		if names[b.Name] {
			t.Errorf("%s: the name is not unique", b.Name)
		}
		names[b.Name] = true
		if len(b.Reports) == 0 || b.By == "" {
			t.Errorf("%s: Reports or By is empty", b.Name)
		}
		if _, err := b.Object("default"); err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
	}
	t.Logf("%d manifests, %d of them written by hand: %v", len(names), byHand, guards)
	if byHand < least {
		t.Errorf("got %d manifests that are written by hand, want at least %d", byHand, least)
	}
	for _, guard := range []Guard{BySchema, ByPolicy, ByManager, ByProvider} {
		if guards[guard] == 0 {
			t.Errorf("got no manifest that the %s refuses", guard)
		}
	}
}
