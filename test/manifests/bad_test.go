package manifests

import "testing"

func TestTheTableHasTheDocumentedLength(t *testing.T) {
	const least = 400 // beside those that wrongTypes derives from the schemas
	byHand, guards, names := len(All())-len(wrongTypes()), map[Guard]int{}, map[string]bool{}
	for _, b := range All() {
		guards[b.By]++
		if names[b.Name] {
			t.Errorf("%s: twice", b.Name)
		}
		names[b.Name] = true
		if len(b.Reports) == 0 || b.By == "" {
			t.Errorf("%s: what does the rejection say, and who refuses?", b.Name)
		}
		if _, err := b.Object("default"); err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
	}
	t.Logf("%d manifests, %d of them written by hand: %v", len(names), byHand, guards)
	if byHand < least {
		t.Errorf("%d manifests, want %d at least", byHand, least)
	}
	for _, guard := range []Guard{BySchema, ByPolicy, ByManager, ByProvider} {
		if guards[guard] == 0 {
			t.Errorf("there is none refused by the %s", guard)
		}
	}
}
