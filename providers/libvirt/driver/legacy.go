package driver

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/legacy"
	"machinist.dev/machinist/providers/libvirt/machine"
)

var _ provider.Importer = (*Driver)(nil)

// legacyKind is the kind of the descriptions that Import accepts, in lower case.
const legacyKind = "libvirtmachineproviderconfig"

// legacyVolumeBytes is the size of the volumes of machine.openshift.io whose description has no size.
const legacyVolumeBytes = 17706254336

// facts contains the properties of a domain that Import needs. The old system uses the architecture of the
// hypervisor, and enlarges a volume that is smaller than its base.
type facts struct {
	DomainType   string `json:"domainType,omitempty"`
	Architecture string `json:"architecture,omitempty"`
	VolumeBytes  uint64 `json:"volumeBytes,omitempty"`
}

// Import implements provider.Importer. It translates the LibvirtMachineProviderConfig of machine.openshift.io.
// https://github.com/openshift/cluster-api-provider-libvirt
func (d *Driver) Import(_ context.Context, req provider.ImportRequest) (provider.ImportedSpec, error) {
	old, err := parseLegacy(req.Legacy)
	if err != nil {
		return provider.ImportedSpec{}, err
	}
	var known facts
	if len(req.Facts) > 0 && json.Unmarshal(req.Facts, &known) != nil {
		return provider.ImportedSpec{}, provider.Errorf(provider.InvalidArgument,
			"the facts do not have the format that Locate returns")
	}
	spec := translateLegacy(old, known)
	credentials := legacyCredentials(old, req.Legacy.Credentials)
	if missing := missingCredentials(credentials); len(missing) > 0 {
		old.Add(legacy.MissingCredentials(missing...))
	} else if _, err := d.options.parse(provider.NewCredentials(credentials)); err != nil {
		old.Add(provider.Finding{Level: provider.FindingBlocker, Code: provider.FindingInvalidField, Path: "uri",
			Message: "the provider cannot use the credentials of the old system; set the keys of this provider in the " +
				"Secret in spec.credentialsRef of the Migration: " + err.Error()})
	}
	raw, err := json.Marshal(spec)
	if err != nil {
		return provider.ImportedSpec{}, provider.Errorf(provider.Internal, "write the providerSpec")
	}
	out := provider.ImportedSpec{Spec: raw, Credentials: credentials, Findings: old.Findings()}
	_, err = machine.ParseSpec(raw)
	if e, invalid := errors.AsType[*provider.Error](err); invalid &&
		!slices.ContainsFunc(out.Findings, func(f provider.Finding) bool { return f.Level == provider.FindingBlocker }) {
		out.Findings = append(out.Findings, provider.Finding{Level: provider.FindingBlocker,
			Code: provider.FindingInvalidField, Message: "the translated class is not valid: " + e.Field + ": " + e.Message})
	}
	return out, nil
}

func parseLegacy(old provider.Legacy) (*legacy.Object, error) {
	if !slices.Contains(provider.Sources(), old.Source) {
		return nil, provider.Errorf(provider.Unimplemented, "the old system %.64q is unknown", old.Source)
	}
	if strings.ToLower(old.Provider) != legacyKind {
		return nil, provider.Errorf(provider.Unimplemented,
			"the old description is for the provider %.64q, not a LibvirtMachineProviderConfig", old.Provider)
	}
	return legacy.Parse(old.Spec)
}

// legacyCredentials returns the keys of this provider in the old system's Secret, and the URI of the description.
func legacyCredentials(old *legacy.Object, secret provider.Credentials) map[string][]byte {
	credentials := map[string][]byte{}
	if uri := old.String(keyURI); uri != "" {
		credentials[keyURI] = []byte(uri)
	}
	for _, key := range []string{keyURI, keyCA, keyCertificate, keyKey} {
		if value, found := secret.Get(key); found {
			credentials[key] = value.Reveal()
		}
	}
	return credentials
}

func missingCredentials(credentials map[string][]byte) (missing []string) {
	required := []string{keyURI}
	if strings.Contains(string(credentials[keyURI]), "+tls://") {
		required = append(required, keyCA, keyCertificate, keyKey)
	}
	for _, key := range required {
		if len(credentials[key]) == 0 {
			missing = append(missing, key)
		}
	}
	return missing
}

func translateLegacy(old *legacy.Object, known facts) machine.Spec {
	// The old system does not use the last two fields.
	old.MarkRead("apiVersion", "kind", "networkInterfaceHostname", "networkUUID")
	old.Object("metadata").MarkRead("creationTimestamp")
	volume := old.Object("volume")
	volume.MarkRead("volumeName")
	spec := machine.Spec{APIVersion: machine.APIVersion, Kind: machine.Kind, DomainType: known.DomainType,
		Architecture: known.Architecture, VCPUs: legacyCPUs(old), MemoryMiB: old.Int("domainMemory"),
		Volume: machine.Volume{Pool: volume.RequiredString("poolName"), Base: volume.RequiredString("baseVolumeID"),
			SizeGiB: legacySize(volume, known)},
		Networks: []machine.Network{{Network: old.RequiredString("networkInterfaceName")}}}
	if strings.HasPrefix(spec.Volume.Base, "/") {
		spec.Volume.Base = path.Base(spec.Volume.Base)
		volume.Report(provider.FindingNote, "BasePath", "baseVolumeID",
			"the provider looks for a volume with this file name in the pool of the machine")
	}
	if !old.Bool("autostart") {
		old.Report(provider.FindingNote, "Autostart", "autostart", "new machines start with the hypervisor")
	}
	if old.HasContent("networkInterfaceAddress") {
		old.Report(provider.FindingNote, "AddressRange", "networkInterfaceAddress",
			"the old system reserves an address of this range for each machine; new machines get an address from the DHCP "+
				"server of the network")
	}
	if old.HasContent("firmware") || old.HasContent("nvram") {
		spec.Firmware = machine.FirmwareUEFI
		old.Report(provider.FindingNote, "FirmwareFile", "firmware", "libvirt selects the UEFI firmware of new machines")
		old.Object("nvram").MarkRead("nvramFile", "nvramTemplate")
	}
	cloudInit := old.Object("cloudInit")
	cloudInit.MarkRead("userDataSecret") // The caller has already resolved the reference.
	if cloudInit.Bool("sshAccess") {
		cloudInit.Report(provider.FindingLoss, "SSHAccess", "sshAccess",
			"the old system adds an SSH key to the user data; add a key to the user data of new machines")
	}
	old.Object("ignition").MarkRead("userDataSecret")
	for _, name := range []string{"ignition", "ignKey"} {
		if old.HasContent(name) {
			old.Add(provider.Finding{Level: provider.FindingLoss, Code: "Ignition", Path: old.Path(name),
				Message: "new machines get their user data as a seed disk of cloud-init, which Ignition does not read; use an " +
					"image with cloud-init, and set its user data and volume.base"})
		}
		old.MarkRead("ignKey")
	}
	old.Add(provider.Finding{Level: provider.FindingNote, Code: "VolumesRemain", Path: old.Path("volume"),
		Message: "when an adopted machine is deleted, its volumes remain, because Machinist did not create them"})
	return spec
}

func legacyCPUs(old *legacy.Object) int32 {
	n := old.Int("domainVcpu")
	return int32(max(0, min(n, math.MaxInt32))) //nolint:gosec // The limits ensure the range.
}

// legacySize returns the size of the root volume in GiB, rounded up.
func legacySize(volume *legacy.Object, known facts) int64 {
	const gib = 1 << 30
	bytes := int64(legacyVolumeBytes)
	if volume.HasContent("volumeSize") {
		size, err := resource.ParseQuantity(volume.String("volumeSize"))
		if err != nil {
			volume.Report(provider.FindingBlocker, provider.FindingInvalidField, "volumeSize",
				"must be a quantity such as 16Gi")
		}
		bytes = size.Value()
	}
	if known.VolumeBytes <= math.MaxInt64 {
		bytes = max(bytes, int64(known.VolumeBytes)) //nolint:gosec // The condition ensures the range.
	}
	size := bytes / gib
	if bytes%gib > 0 {
		size++
	}
	return size
}

// Locate implements provider.Importer. The old system names a domain and its root volume after the Machine, and adds
// no metadata. So Locate returns all domains of the hypervisor.
func (d *Driver) Locate(ctx context.Context, req provider.LocateRequest) (found []provider.LocatedInstance,
	err error) {
	old, err := parseLegacy(req.Legacy)
	if err != nil {
		return nil, err
	}
	pool := old.Object("volume").String("poolName")
	credentials := provider.NewCredentials(legacyCredentials(old, req.Legacy.Credentials)).
		InNamespace(req.Legacy.Credentials.Namespace())
	err = d.withHypervisor(ctx, credentials, "", func(h *hypervisor) error {
		all, err := h.listDomains(ctx, func(*domain) bool { return true }, anyDomain)
		if err != nil {
			return err
		}
		for _, domain := range all {
			in, err := h.instance(ctx, domain)
			if provider.IsNotFound(err) {
				continue
			}
			if err != nil {
				return err
			}
			located := provider.LocatedInstance{Instance: *in, Machine: domain.Name}
			if located.Facts, err = h.legacyFacts(ctx, domain, pool); err != nil {
				return err
			}
			if domain.metadata.Cluster == "" && domain.metadata.Adoptable != "true" {
				located.NotAdoptable = "the domain" + missingMark(in.ProviderID)
			}
			found = append(found, located)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// legacyFacts omits the facts of objects that do not exist, for which Import uses defaults. Other errors must not
// change the plan, so legacyFacts returns them.
func (h *hypervisor) legacyFacts(ctx context.Context, d *domain, poolName string) ([]byte, error) {
	var f facts
	described, err := h.describe(ctx, d)
	if err != nil && !provider.IsNotFound(err) {
		return nil, err
	}
	if err == nil {
		if slices.Contains([]string{machine.DomainKVM, machine.DomainQEMU}, described.Type) {
			f.DomainType = described.Type
		}
		f.Architecture = described.architecture()
	}
	pool, err := h.StoragePoolLookupByName(poolName)
	if err == nil {
		var v volumeXML
		if _, v, err = h.lookUpVolume(pool, d.Name); err == nil {
			f.VolumeBytes = v.Capacity.Bytes
		}
	}
	if err != nil && !isAbsent(err) {
		return nil, translate(ctx, err, "read volume "+d.Name+" in storage pool "+poolName)
	}
	raw, err := json.Marshal(f)
	if err != nil {
		return nil, provider.Errorf(provider.Internal, "write the facts of domain %.128q", d.Name)
	}
	return raw, nil
}

// Release implements provider.Importer. The old system has no collector, so there is nothing to remove.
func (d *Driver) Release(ctx context.Context, req provider.ReleaseRequest) error {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return err
	}
	id, err := parseProviderID(req.ProviderID)
	if err != nil {
		return err
	}
	return d.withHypervisor(ctx, req.Class.Credentials, req.Scope, func(h *hypervisor) error {
		found, err := h.get(ctx, id)
		if err != nil {
			return err
		}
		return h.checkOwner(found, own)
	})
}

// Disown implements provider.Importer. It removes everything from Machinist's element that Adopt and Update have
// written, and keeps the mark that allowed the adoption.
func (d *Driver) Disown(ctx context.Context, req provider.DisownRequest) error {
	own, err := ownerOf(req.ClusterID, req.Machine)
	if err != nil {
		return err
	}
	id, err := parseProviderID(req.ProviderID)
	if err != nil {
		return err
	}
	return d.withHypervisor(ctx, req.Class.Credentials, req.Scope, func(h *hypervisor) error {
		found, err := h.get(ctx, id)
		if provider.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if found.metadata.Cluster == "" && found.metadata.UID == "" {
			return nil
		}
		if err := h.checkOwner(found, own); err != nil {
			return err
		}
		return h.writeMetadata(ctx, found, metadata{Adoptable: found.metadata.Adoptable})
	})
}
