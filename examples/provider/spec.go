package main

import "machinist.dev/machinist/pkg/provider"

// spec is the providerSpec of this provider, which users write in a MachineClass.
type spec struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Size       string `json:"size"`
}

func parse(raw []byte) (s spec, err error) {
	err = provider.DecodeSpec(raw, "folder.example.com/v1", "FolderMachine", &s)
	if err == nil && s.Size != "small" && s.Size != "large" {
		err = provider.InvalidField("size", "%.64q is not small or large", s.Size)
	}
	return s, err
}
