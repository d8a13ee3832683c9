"""Fetch JARs with the resolver that Spark ships (Ivy), which knows the public repository."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import warnings
from collections.abc import Sequence
from pathlib import Path
from xml.sax.saxutils import quoteattr

from headrace.engines.java import find_java

_TRUST_PASSWORD = "changeit"  # noqa: S105  it guards nothing: the file holds public certificates


def fetch_with_ivy(
    modules: Sequence[tuple[str, str, str]], into: Path, *, spark_jars: Path, timeout_s: float
) -> str:
    """Fetch exactly `modules`, without what they depend on, as `ARTIFACT-VERSION.jar`.

    `HEADRACE_MAVEN_URL` names another repository than the public one.

    Args:
        modules: (group, artifact, version) of each.
        into: Folder that the files are put in.
        spark_jars: Folder with Spark's JARs, one of which is Ivy.
        timeout_s: How long it may take.

    Returns:
        An empty text, or why it failed.
    """
    ivy = next(iter(sorted(spark_jars.glob("ivy-*.jar"))), None)
    if ivy is None:
        return f"there is no Ivy in {spark_jars}"
    work = into / ".ivy"
    work.mkdir(mode=0o700)
    (work / "ivy.xml").write_text(_module_xml(modules))
    (work / "settings.xml").write_text(_settings_xml(work))
    reason = _run_ivy(ivy, work, into, (), timeout_s)
    if "PKIX path" in reason:
        # Java has certificates of its own. Behind a proxy only the system's know the proxy's.
        trust = _system_certificates(work)
        reason = _run_ivy(ivy, work, into, trust, timeout_s) if trust else reason
    return reason


def _run_ivy(ivy: Path, work: Path, into: Path, options: Sequence[str], timeout_s: float) -> str:
    java = find_java().home / "bin" / "java"
    command = [str(java), *options, f"-Divy.default.ivy.user.dir={work}", "-cp", str(ivy)]
    command += ["org.apache.ivy.Main", "-settings", str(work / "settings.xml")]
    command += ["-ivy", str(work / "ivy.xml"), "-cache", str(work / "cache")]
    command += ["-confs", "default", "-types", "jar", "bundle"]
    command += ["-retrieve", f"{into}/[artifact]-[revision].[ext]"]
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it took longer than {timeout_s:g} s"
    return "" if done.returncode == 0 else _reason(done.stdout)


def _reason(output: str) -> str:
    told = re.search(r"Server access error at url .*?\((.*)\)", output)
    refused = re.search(r"(?:SERVER ERROR|not found): .*", output)
    found = told.group(1) if told else refused.group(0) if refused else output.strip()[-300:]
    return re.sub(r"//[^/@\s]+@", "//***@", found)


def _module_xml(modules: Sequence[tuple[str, str, str]]) -> str:
    wanted = "".join(
        f"<dependency org={quoteattr(group)} name={quoteattr(artifact)} rev={quoteattr(version)} "
        'transitive="false" conf="default->default"/>'
        for group, artifact, version in modules
    )
    return (
        '<ivy-module version="2.0"><info organisation="headrace" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{wanted}</dependencies></ivy-module>"
    )


def _settings_xml(work: Path) -> str:
    mirror = os.environ.get("HEADRACE_MAVEN_URL")
    root = f" root={quoteattr(mirror.rstrip('/') + '/')}" if mirror else ""
    return (
        '<ivysettings><settings defaultResolver="public"/>'
        '<timeout-constraints><timeout-constraint name="short" connectionTimeout="15000" '
        'readTimeout="60000"/></timeout-constraints>'
        f"<caches defaultCacheDir={quoteattr(str(work / 'cache'))}/>"
        f'<resolvers><ibiblio name="public" m2compatible="true" timeoutConstraint="short"{root}/>'
        "</resolvers></ivysettings>"
    )


def _system_certificates(work: Path) -> tuple[str, ...]:
    """Java options that trust what Python trusts (`SSL_CERT_FILE` or the system's), if possible."""
    bundle = ssl.get_default_verify_paths().cafile
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        return ()
    if bundle is None:
        return ()
    with warnings.catch_warnings():
        # Some public roots break a rule that newer ones keep; they are trusted all the same.
        warnings.simplefilter("ignore")
        known = x509.load_pem_x509_certificates(Path(bundle).read_bytes())
    entries = [
        pkcs12.PKCS12Certificate(certificate, str(number).encode())
        for number, certificate in enumerate(known)
    ]
    store = work / "trust.p12"
    protection = serialization.BestAvailableEncryption(_TRUST_PASSWORD.encode())
    store.write_bytes(pkcs12.serialize_java_truststore(entries, protection))
    return (
        f"-Djavax.net.ssl.trustStore={store}",
        f"-Djavax.net.ssl.trustStorePassword={_TRUST_PASSWORD}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
    )
