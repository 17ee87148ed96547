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

// List implements provider.Driver: all of the hypervisor in one page. Volumes are read first, so that those of a domain
// that is made meanwhile are not taken for those of none.
func (d *Driver) List(ctx context.Context, req provider.ListRequest) (page provider.ListPage, err error) {
	if req.ClusterID == "" {
		return page, provider.Errorf(provider.InvalidArgument, "list domains: the cluster id is empty")
	}
	if req.Continue != "" {
		return page, provider.Errorf(provider.InvalidArgument,
			"list domains: the page to continue with is none of this provider's")
	}
	err = d.with(ctx, req.Class.Credentials, "", func(h *hypervisor) error {
		volumes, err := h.volumes(ctx, machine.VolumeMark+escape(req.ClusterID)+"_")
		if err != nil {
			return err
		}
		all, err := h.domains(ctx, func(d *domain) bool { return d.metadata.Cluster == req.ClusterID }, every)
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

// leftover is a volume without a domain.
func (h *hypervisor) leftover(v volume) provider.Leftover {
	l := provider.Leftover{ID: "volume/" + v.Pool + "/" + v.Name, ClusterID: v.cluster, MachineUID: types.UID(v.uid)}
	// Its time is for people, and nobody need wait for it.
	var is volumeXML
	text, err := h.StorageVolGetXMLDesc(v.StorageVol, 0)
	if err != nil || xml.Unmarshal([]byte(text), &is) != nil || is.Target.Timestamps == nil {
		return l
	}
	seconds, _, _ := strings.Cut(is.Target.Timestamps.Modified, ".")
	if n, err := strconv.ParseInt(seconds, 10, 64); err == nil {
		l.LaunchTime = time.Unix(n, 0).UTC()
	}
	return l
}

// ListScope implements provider.Scoper: List goes through the hypervisor that the credentials name.
func (d *Driver) ListScope(class provider.Class) (string, error) {
	e, err := d.options.parse(class.Credentials)
	if err != nil {
		return "", err
	}
	return e.public(), nil
}
