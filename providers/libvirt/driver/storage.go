package driver

import (
	"bytes"
	"context"
	"encoding/xml"
	"fmt"

	"github.com/digitalocean/go-libvirt"

	"machinist.dev/machinist/pkg/provider"
)

// These types are the part of a volume's XML that Machinist uses. https://libvirt.org/formatstorage.html
type (
	volumeXML struct {
		XMLName  xml.Name        `xml:"volume"`
		Name     string          `xml:"name"`
		Capacity sizeXML         `xml:"capacity"`
		Target   volumeTargetXML `xml:"target"`
		Backing  *backingXML     `xml:"backingStore"`
	}
	sizeXML struct {
		Unit  string `xml:"unit,attr"`
		Bytes uint64 `xml:",chardata"`
	}
	volumeTargetXML struct {
		Path       string         `xml:"path,omitempty"`
		Format     formatXML      `xml:"format"`
		Timestamps *timestampsXML `xml:"timestamps"`
	}
	formatXML struct {
		Type string `xml:"type,attr"`
	}
	backingXML struct {
		Path   string    `xml:"path"`
		Format formatXML `xml:"format"`
	}
	timestampsXML struct {
		Modified string `xml:"mtime"`
	}
)

// pool returns an active storage pool. Each driver call looks up a pool only once.
func (h *hypervisor) pool(ctx context.Context, name, field string) (libvirt.StoragePool, error) {
	if pool, known := h.activePools[name]; known {
		return pool, nil
	}
	attempted := "find the storage pool"
	pool, err := h.StoragePoolLookupByName(name)
	if err != nil {
		return pool, withField(translate(ctx, err, attempted), field)
	}
	active, err := h.StoragePoolIsActive(pool)
	if err != nil {
		return pool, withField(translate(ctx, err, attempted), field)
	}
	if active == 0 {
		e := provider.Errorf(provider.FailedPrecondition, "%s: the pool is not active", attempted)
		e.Field = field
		return pool, e
	}
	h.activePools[name] = pool
	return pool, nil
}

func (h *hypervisor) lookUpVolume(pool libvirt.StoragePool, name string) (libvirt.StorageVol, volumeXML, error) {
	v, err := h.StorageVolLookupByName(pool, name)
	if err != nil {
		return v, volumeXML{}, err
	}
	text, err := h.StorageVolGetXMLDesc(v, 0)
	if err != nil {
		return v, volumeXML{}, err
	}
	var current volumeXML
	if err := xml.Unmarshal([]byte(text), &current); err != nil {
		return v, volumeXML{}, provider.Errorf(provider.Internal, "the XML of a volume cannot be read")
	}
	return v, current, nil
}

// existingVolume returns a volume that must exist, such as an image. existingVolume refreshes the pool if necessary,
// because libvirt does not detect files that an administrator has copied into the directory.
func (h *hypervisor) existingVolume(ctx context.Context, poolName, poolField, name, field string) (volumeXML, error) {
	pool, err := h.pool(ctx, poolName, poolField)
	if err != nil {
		return volumeXML{}, err
	}
	_, current, err := h.lookUpVolume(pool, name)
	if codeOf(err) == libvirt.ErrNoStorageVol {
		if err := h.StoragePoolRefresh(pool, 0); err != nil {
			return volumeXML{}, translate(ctx, err, "refresh the storage pool")
		}
		_, current, err = h.lookUpVolume(pool, name)
	}
	if err != nil {
		return volumeXML{}, withField(translate(ctx, err, "find the volume"), field)
	}
	return current, nil
}

// ensureVolume creates a volume, or returns the volume of an earlier call of the same attempt. A volume that differs
// is replaced. No domain uses the replaced volume, because the attempt has not created a domain yet.
func (h *hypervisor) ensureVolume(ctx context.Context, pool libvirt.StoragePool, want volumeXML,
	field string) (libvirt.StorageVol, error) {
	attempted := "create a volume"
	v, current, err := h.lookUpVolume(pool, want.Name)
	switch {
	case err == nil && current.matches(want):
		return v, nil
	case err == nil:
		if err := h.StorageVolDelete(v, 0); err != nil && !isAbsent(err) {
			return v, translate(ctx, err, "replace a volume of an earlier attempt")
		}
	case codeOf(err) != libvirt.ErrNoStorageVol:
		return v, translate(ctx, err, attempted)
	}
	text, err := xml.Marshal(want)
	if err != nil {
		return v, provider.Errorf(provider.Internal, "%s: its XML cannot be written", attempted)
	}
	v, err = h.StorageVolCreateXML(pool, string(text), 0)
	if codeOf(err) == libvirt.ErrStorageVolExist || codeOf(err) != libvirt.ErrOk &&
		messageContains(err, "already exists") {
		// libvirt finds the unfinished file of an interrupted creation only after a refresh.
		if err := h.StoragePoolRefresh(pool, 0); err != nil {
			return v, translate(ctx, err, "refresh the storage pool")
		}
		return v, provider.Errorf(provider.Aborted, "%s: another call has created the volume or left its file behind",
			attempted)
	}
	return v, withField(translate(ctx, err, attempted), field)
}

func (v volumeXML) matches(want volumeXML) bool {
	return v.Capacity.Bytes == want.Capacity.Bytes && v.Target.Format == want.Target.Format &&
		(v.Backing != nil && v.Backing.Path != "") == (want.Backing != nil) &&
		(want.Backing == nil || v.Backing.Path == want.Backing.Path)
}

func (h *hypervisor) uploadSeed(ctx context.Context, v libvirt.StorageVol, content []byte) error {
	err := h.StorageVolUpload(v, bytes.NewReader(content), 0, uint64(len(content)), 0)
	return translate(ctx, err, "write the seed")
}

// deleteVolume succeeds if the volume or its file no longer exists.
func (h *hypervisor) deleteVolume(ctx context.Context, v libvirt.StorageVol) error {
	if err := h.StorageVolDelete(v, 0); err != nil && !isAbsent(err) {
		return translate(ctx, err, fmt.Sprintf("delete volume %.64q of pool %.64q%s", v.Name, v.Pool, answerText(err)))
	}
	return nil
}
