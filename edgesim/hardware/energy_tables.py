"""Energy of single operations and of memory, from published tables.

Both tables price arithmetic units alone, without fetching and decoding of instructions, which takes
tens of picojoules per instruction on a general core (Horowitz 2014). Both give energies of memory
per 64-bit access; here they are divided by eight, per byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

Precision = Literal["int8", "16bit", "fp32"]
Accumulate = Literal["paper", "int32"]
Memory = Literal["dram", "sram"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyTable:
    """Picojoules of operations and of bytes moved.

    Attributes:
        name: as scenarios and commands name it.
        citation: the publication.
        int8_mul_pj: product of 8-bit integers.
        int8_add_pj: sum of 8-bit integers.
        int32_add_pj: sum of 32-bit integers.
        fp16_mul_pj: product of 16-bit floats.
        fp16_add_pj: sum of 16-bit floats.
        fp32_mul_pj: product of 32-bit floats.
        fp32_add_pj: sum of 32-bit floats.
        dram_pj_per_byte: a byte read from or written to DRAM.
        sram_pj_per_byte: a byte read from or written to 1 MB of SRAM on the chip.
    """

    name: str
    citation: str
    int8_mul_pj: float
    int8_add_pj: float
    int32_add_pj: float
    fp16_mul_pj: float
    fp16_add_pj: float
    fp32_mul_pj: float
    fp32_add_pj: float
    dram_pj_per_byte: float
    sram_pj_per_byte: float

    def mac_pj(self, precision: Precision, accumulate: Accumulate) -> float:
        """A multiply-accumulate (reference.md, section 6).

        Args:
            precision: of the operands.
            accumulate: width of the sums of 8-bit products: 8 bits, as in the paper's factor of 20,
                or the 32 bits that they need. Floats add up in their own width in either case, as
                in reference.md, section 6; a 16-bit product added in fp32 would cost more.
        """
        match precision:
            case "int8":
                match accumulate:
                    case "paper":
                        return self.int8_mul_pj + self.int8_add_pj
                    case "int32":
                        return self.int8_mul_pj + self.int32_add_pj
                    case _:
                        assert_never(accumulate)
            case "16bit":
                return self.fp16_mul_pj + self.fp16_add_pj
            case "fp32":
                return self.fp32_mul_pj + self.fp32_add_pj
            case _:
                assert_never(precision)

    def byte_pj(self, memory: Memory) -> float:
        """A byte of traffic with this kind of memory."""
        match memory:
            case "dram":
                return self.dram_pj_per_byte
            case "sram":
                return self.sram_pj_per_byte
            case _:
                assert_never(memory)


HOROWITZ_45NM = EnergyTable(
    name="horowitz_45nm",
    citation=(
        "M. Horowitz, Computing's energy problem (and what we can do about it), ISSCC 2014,"
        " figure 1.1.9: 45 nm, 0.9 V"
    ),
    int8_mul_pj=0.2,  # integer multiply, 8 bit
    int8_add_pj=0.03,  # integer add, 8 bit
    int32_add_pj=0.1,  # integer add, 32 bit
    fp16_mul_pj=1.1,  # FMult, 16 bit
    fp16_add_pj=0.4,  # FAdd, 16 bit
    fp32_mul_pj=3.7,  # FMult, 32 bit
    fp32_add_pj=0.9,  # FAdd, 32 bit
    dram_pj_per_byte=1300 / 8,  # DRAM, 1.3 to 2.6 nJ per 64-bit access; the lower end
    sram_pj_per_byte=100 / 8,  # 1 MB cache, 100 pJ per 64-bit access
)

# The publication's table sets these beside the 45 nm column above: the same operations.
JOUPPI_7NM = EnergyTable(
    name="jouppi_7nm",
    citation=(
        "N. P. Jouppi et al., Ten lessons from three generations shaped Google's TPUv4i,"
        " ISCA 2021, table 2: 7 nm"
    ),
    int8_mul_pj=0.07,  # multiply, int8
    int8_add_pj=0.007,  # add, int8
    int32_add_pj=0.03,  # add, int32
    fp16_mul_pj=0.34,  # multiply, IEEE fp16
    fp16_add_pj=0.16,  # add, IEEE fp16
    fp32_mul_pj=1.31,  # multiply, IEEE fp32
    fp32_add_pj=0.38,  # add, IEEE fp32
    dram_pj_per_byte=1300 / 8,  # DDR3/4, 1300 pJ per 64 bits: memory has not become cheaper
    sram_pj_per_byte=14 / 8,  # 1 MB SRAM, 14 pJ per 64 bits
)

ENERGY_TABLES: dict[str, EnergyTable] = {table.name: table for table in (HOROWITZ_45NM, JOUPPI_7NM)}
