package main

import (
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// document writes what the archives have besides the program: manual pages,
// completions, licences.
func (r *release) document(program string) error {
	man := filepath.Join(r.into, "man")
	completions := filepath.Join(r.into, "completions")
	for _, dir := range []string{man, completions} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if _, err := output(r.into, program, "man", man); err != nil {
		return err
	}
	for shell, name := range map[string]string{"bash": "exeunt.bash", "zsh": "_exeunt", "fish": "exeunt.fish"} {
		text, err := output(r.into, program, "completion", shell)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(completions, name), []byte(text+"\n"), 0o644); err != nil {
			return err
		}
	}
	return r.licences(program)
}

// sbom writes the modules in a program as an SPDX document.
func (r *release) sbom(program, name string) error {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return err
	}
	licences, err := r.licencesOf(program)
	if err != nil {
		return err
	}
	sum, err := hashFile(program)
	if err != nil {
		return err
	}
	doc := spdxDocument{
		SPDXVersion: "SPDX-2.3", DataLicense: "CC0-1.0", SPDXID: "SPDXRef-DOCUMENT", Name: name,
		DocumentNamespace: "https://exeunt.dev/spdx/" + name + "-" + sum,
		CreationInfo:      spdxCreation{Created: r.date.Format(timeFormat), Creators: []string{"Tool: exeunt-release"}},
	}
	add := func(path, version, licence string) {
		id := fmt.Sprintf("SPDXRef-Package-%d", len(doc.Packages))
		doc.Packages = append(doc.Packages, spdxPackage{
			SPDXID: id, Name: path, VersionInfo: version, DownloadLocation: "NOASSERTION", LicenseConcluded: licence, LicenseDeclared: licence, CopyrightText: "NOASSERTION",
			ExternalRefs: []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + path + "@" + version}},
		})
		from, kind := "SPDXRef-DOCUMENT", "DESCRIBES"
		if id != "SPDXRef-Package-0" {
			from, kind = "SPDXRef-Package-0", "DEPENDS_ON"
		}
		doc.Relationships = append(doc.Relationships, spdxRelationship{from, kind, id})
	}
	add(info.Main.Path, r.version, "Apache-2.0")
	add("stdlib", strings.TrimPrefix(info.GoVersion, "go"), "BSD-3-Clause")
	for _, m := range info.Deps {
		add(m.Path, m.Version, licences[m.Path].name)
	}
	data, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.into, name+".spdx.json"), append(data, '\n'), 0o644)
}

// The parts of SPDX 2.3 that the document uses.
type (
	spdxDocument struct {
		SPDXVersion       string             `json:"spdxVersion"`
		DataLicense       string             `json:"dataLicense"`
		SPDXID            string             `json:"SPDXID"`
		Name              string             `json:"name"`
		DocumentNamespace string             `json:"documentNamespace"`
		CreationInfo      spdxCreation       `json:"creationInfo"`
		Packages          []spdxPackage      `json:"packages"`
		Relationships     []spdxRelationship `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPackage struct {
		SPDXID           string    `json:"SPDXID"`
		Name             string    `json:"name"`
		VersionInfo      string    `json:"versionInfo"`
		DownloadLocation string    `json:"downloadLocation"`
		LicenseConcluded string    `json:"licenseConcluded"`
		LicenseDeclared  string    `json:"licenseDeclared"`
		CopyrightText    string    `json:"copyrightText"`
		ExternalRefs     []spdxRef `json:"externalRefs"`
	}
	spdxRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxRelationship struct {
		Element string `json:"spdxElementId"`
		Type    string `json:"relationshipType"`
		Related string `json:"relatedSpdxElement"`
	}
)
