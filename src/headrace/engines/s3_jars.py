"""The JARs of Hadoop's S3 connector: what Spark needs for `s3a://` beside what pyspark ships.

`hadoop-aws` in pyspark's version of Hadoop, and of Amazon's SDK the modules that it uses instead
of the whole (600 MB). What pyspark has already (netty, slf4j, httpclient, commons-codec) is left
out, since two copies of a class on one class path make errors that nobody can explain.
"""

# ruff: noqa: E501 - a line for each file
from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headrace.engines.jars import DELTA_JARS, Jar
from headrace.profiles.storage import Storage

_SDK: Final = "software.amazon.awssdk"
_SDK_VERSION: Final = "2.35.4"

# fmt: off
S3_JARS: Final = (
    Jar("org.apache.hadoop", "hadoop-aws", "3.5.0", 938_071, "66bd9eefb938b1a1657487324b63c13df2d8b17164a1dd24e0ef37b905bc5baa"),
    Jar(_SDK, "annotations", _SDK_VERSION, 13_758, "6f36bd87155d1dd85d6efbdd29e532e3759a022211feb71affebee1aa34f04b8"),
    Jar(_SDK, "apache-client", _SDK_VERSION, 77_013, "6eade21b482724ed0a4613eaa95d20e47e7a81304bd28538ac427fece94a7740"),
    Jar(_SDK, "arns", _SDK_VERSION, 16_323, "c63cc29f76a8527e9e10b621703163df541dc5cb315508dc2898518602c75380"),
    Jar(_SDK, "auth", _SDK_VERSION, 241_952, "6b601323004833fb4a857ffc95db4795e0e6320eb93e64b1246c655c9ff04994"),
    Jar(_SDK, "aws-core", _SDK_VERSION, 192_161, "fdb5fc8f1a48d97fa7d04d3460fb42f6973c7b1bbe1b9d317871ef0162bcb623"),
    Jar(_SDK, "aws-query-protocol", _SDK_VERSION, 69_369, "9b4cf9b78977cc9f5b4ceae9c435dedbde6a055a0f8d9e053eaca945715e2a9f"),
    Jar(_SDK, "aws-xml-protocol", _SDK_VERSION, 102_272, "4f59176da2522c357b1993e4a890fde529f12f365795ef86269bde4a3984cd0d"),
    Jar(_SDK, "checksums", _SDK_VERSION, 69_585, "94464af4374d08ecf33ca06ed4d03e1615529e547726e26b56abacefbeee7948"),
    Jar(_SDK, "checksums-spi", _SDK_VERSION, 8_044, "88b5af85ac2d3c862be8856be4e683ab31932e4a5a3c1c45af864d2671ac7cec"),
    Jar(_SDK, "crt-core", _SDK_VERSION, 17_774, "2c6aaa17bf9ccbb9d962dded4351e73decb197e3c5519970e0dae17e05d3df62"),
    Jar(_SDK, "endpoints-spi", _SDK_VERSION, 13_168, "ef02441bda916959b8341290b49c68cc35538e1ad6f8629b75d8334dc6653e00"),
    Jar(_SDK, "http-auth", _SDK_VERSION, 17_475, "3ec933a06e751a05e195eb3589209e23c44e1897263b6fcae34ef4cc63cd4491"),
    Jar(_SDK, "http-auth-aws", _SDK_VERSION, 171_754, "c4acb92fdec90bfd9b67bfab8e41b69cd152c03cacc10281a8ab464791856e01"),
    Jar(_SDK, "http-auth-aws-eventstream", _SDK_VERSION, 8_705, "709107552f302be3fa9e05969a3779f5c0f07fb809e6fa1fa571a6f0c61326dd"),
    Jar(_SDK, "http-auth-spi", _SDK_VERSION, 48_042, "4495463406bb98eb136f2c3f3604ed5f08ec9974ebc3f34f2121b20679f61d5c"),
    Jar(_SDK, "http-client-spi", _SDK_VERSION, 91_685, "728be89b2a07b595edb0adee3a2cbbbdd4cb1f4caddde0d08c3979fe2620dedb"),
    Jar(_SDK, "identity-spi", _SDK_VERSION, 30_963, "188d73db7d4e2361654bc3c5a1b3eaeb445d0500fb012cc46c5d67975adf97bf"),
    Jar(_SDK, "json-utils", _SDK_VERSION, 33_225, "80d67a6bb3e7eb49c7d4b6e4ba4c1463ed7da0192b795158328602dc131c5ecc"),
    Jar(_SDK, "metrics-spi", _SDK_VERSION, 27_262, "c2a4ee90a21081317e2e6eba0c414d05d3d518aed2f86b1c1710a7367b450487"),
    Jar(_SDK, "netty-nio-client", _SDK_VERSION, 292_688, "b82f8b33e5c85273a47da45ede884d7ccb31c9c2f69e6910a76c5c48fa1275dc"),
    Jar(_SDK, "profiles", _SDK_VERSION, 50_524, "0f4ef7ca72ccd80dd49ebeaf7f3ce60a7d7a00da59a91aeeae6e91052bbacbd8"),
    Jar(_SDK, "protocol-core", _SDK_VERSION, 44_371, "f2532eca6ba2142fe4821d5decb03c83a3e15dc8bfae2240e7f2efa75f9868b5"),
    Jar(_SDK, "regions", _SDK_VERSION, 962_286, "77eae87b34ce96ecdf916a9bc06684dbeafcb6d38ef0513285fa5d5d6d41f5ca"),
    Jar(_SDK, "retries", _SDK_VERSION, 66_309, "f99fb2f8c66d7e859955b3542d3af8f9de8f23a21d5e3250f0f2c5f18487e469"),
    Jar(_SDK, "retries-spi", _SDK_VERSION, 31_487, "668638751d059c527ddd41ffa4dcebe36a7c14860ed56776df09b861c14dc7dd"),
    Jar(_SDK, "s3", _SDK_VERSION, 4_084_242, "f23532c5223be9b0bfec0d72837ed09ed34dbdf8022818ba145b20076a78b4bc"),
    Jar(_SDK, "s3-transfer-manager", _SDK_VERSION, 251_117, "0eec78870b3d0abc509a847072cf963cb2ae6e360dc6161a9449b3398c470476"),
    Jar(_SDK, "sdk-core", _SDK_VERSION, 1_040_729, "fa559a4ce598852f3519c8f3b36250f583b0858a7611eedc4a81997778c617f4"),
    Jar(_SDK, "sts", _SDK_VERSION, 545_150, "8d0f7816d3f96e3f00249f5d054d926e939a104bcf9ef57676ee0b16c59684d2"),
    Jar(_SDK, "third-party-jackson-core", _SDK_VERSION, 535_001, "32f4252c6c2df8f3a4aff885e6dc77024ad6b4cb48455d07b461ec30c41643ea"),
    Jar(_SDK, "utils", _SDK_VERSION, 241_618, "642aeef536a071668f0b772f05f9d21573abf6955e7b6fb5fdb893760cca10e8"),
    Jar(_SDK, "utils-lite", _SDK_VERSION, 8_798, "e004806def5e22ec98edc48a133ff3317166255e1ba29d93d129e9fdfa64a7be"),
    Jar("software.amazon.eventstream", "eventstream", "1.0.1", 30_193, "0c37d8e696117f02c302191b8110b0d0eb20fa412fce34c3a269ec73c16ce822"),
    Jar("org.reactivestreams", "reactive-streams", "1.0.4", 11_640, "f75ca597789b3dac58f61857b9ac2e1034a68fa672db35055a8fb4509e325f28"),
    Jar("software.amazon.s3.analyticsaccelerator", "analyticsaccelerator-s3", "1.3.1", 2_473_459, "4959a9747cbb479c73c3ffbcd479bee5b014f8b2880994585a8693fb9d24675e"),
)
# fmt: on


def spark_jars(storage: Storage, spark_conf: Mapping[str, str] | None = None) -> tuple[Jar, ...]:
    """The JARs of a session: those of Delta, and those of S3 where tables are kept there.

    Args:
        storage: Where the tables are.
        spark_conf: The profile's settings; one that names an `hadoop-aws` of its own is left alone.
    """
    has_own = any("hadoop-aws" in str(value) for value in (spark_conf or {}).values())
    return DELTA_JARS if storage.kind == "local" or has_own else (*DELTA_JARS, *S3_JARS)
