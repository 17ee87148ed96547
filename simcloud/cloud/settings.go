package cloud

import (
	"encoding/json"
	"fmt"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/catalog"
	"machinist.dev/machinist/simcloud/journal"
)

// Settings returns the current settings.
func (c *Cloud) Settings() simcloud.Settings {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.settings
}

// PatchSettings changes settings. The changes survive a restart, even if the configuration file has changed.
func (c *Cloud) PatchSettings(patch simcloud.SettingsPatch) (simcloud.Settings, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var overlay simcloud.SettingsPatch
	if err := merge(&overlay, c.overlay, patch); err != nil {
		return c.settings, failJournal(err)
	}
	next := c.catalog.Settings
	if err := merge(&next, overlay); err != nil {
		return c.settings, failJournal(err)
	}
	if err := catalog.ValidateSettings(next); err != nil {
		return c.settings, fail(simcloud.CodeInvalidParameter, "%v", err)
	}
	if err := c.journal.Commit(journal.Op{Key: keySettings, Value: overlay}); err != nil {
		return c.settings, failJournal(err)
	}
	if lagsOf(next) != lagsOf(c.settings) {
		c.showAll() // A new lag applies only to later writes.
	}
	c.overlay, c.settings = overlay, next
	return next, nil
}

func (c *Cloud) loadSettings() error {
	if ok, err := c.journal.Get(keySettings, &c.overlay); !ok || err != nil {
		return err
	}
	return merge(&c.settings, c.overlay)
}

// merge copies every field of a patch that is not nil into a value with the same JSON field names.
func merge(into any, patches ...any) error {
	for _, patch := range patches {
		data, err := json.Marshal(patch)
		if err != nil {
			return fmt.Errorf("encode settings: %w", err)
		}
		if err := json.Unmarshal(data, into); err != nil {
			return fmt.Errorf("decode settings: %w", err)
		}
	}
	return nil
}
