package driver

import (
	"context"
	"encoding/xml"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/providers/libvirt/machine"
)

// List implements provider.Driver. It returns everything on the hypervisor in one page. Volumes are read before
// domains. Otherwise, the volumes of a domain that is just being created would look like leftovers.
func (d *Driver) List(ctx context.Context, req provider.ListRequest) (page provider.ListPage, err error) {
	if req.ClusterID == "" {
		return page, provider.Errorf(provider.InvalidArgument, "list domains: the cluster ID is empty")
	}
	if req.Continue != "" {
		return page, provider.Errorf(provider.InvalidArgument,
			"list domains: the continue token is not from this provider")
	}
	err = d.withHypervisor(ctx, req.Class.Credentials, "", func(h *hypervisor) error {
		volumes, err := h.listVolumes(ctx, machine.VolumePrefix+escape(req.ClusterID)+"_")
		if err != nil {
			return err
		}
		all, err := h.listDomains(ctx, func(d *domain) bool { return d.metadata.Cluster == req.ClusterID }, anyDomain)
		if err != nil {
			return err
		}
		used := map[string]bool{}
		for _, d := range all {
			used[d.metadata.UID+" "+d.metadata.Attempt] = true
			in, err := h.instance(ctx, d)
			if provider.IsNotFound(err) {
				continue
			}
			if err != nil {
				return err
			}
			page.Instances = append(page.Instances, *in)
		}
		for _, v := range volumes {
			if v.cluster == req.ClusterID && !used[v.uid+" "+v.attempt] {
				page.Leftovers = append(page.Leftovers, h.leftover(v))
			}
		}
		return nil
	})
	if err != nil {
		return provider.ListPage{}, err
	}
	return page, nil
}

// leftover describes a volume that no domain uses.
func (h *hypervisor) leftover(v volume) provider.Leftover {
	l := provider.Leftover{ID: "volume/" + v.Pool + "/" + v.Name, ClusterID: v.cluster, MachineUID: types.UID(v.uid)}
	// Ignore errors, because the creation time is only for information.
	var description volumeXML
	text, err := h.StorageVolGetXMLDesc(v.StorageVol, 0)
	if err != nil || xml.Unmarshal([]byte(text), &description) != nil || description.Target.Timestamps == nil {
		return l
	}
	seconds, _, _ := strings.Cut(description.Target.Timestamps.Modified, ".")
	if n, err := strconv.ParseInt(seconds, 10, 64); err == nil {
		l.LaunchTime = time.Unix(n, 0).UTC()
	}
	return l
}

// ListScope implements provider.Scoper. The scope is the hypervisor in the credentials.
func (d *Driver) ListScope(class provider.Class) (string, error) {
	e, err := d.options.parse(class.Credentials)
	if err != nil {
		return "", err
	}
	return e.publicName(), nil
}
